"""The installation: settings, addresses, processes and the services they stand on."""
