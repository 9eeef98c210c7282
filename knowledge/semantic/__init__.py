"""The semantic arm: an app of its own, installed where an embedder is configured and not else."""
