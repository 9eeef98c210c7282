"""Records that cite retained originals: writing them, reading them, letting them go."""
