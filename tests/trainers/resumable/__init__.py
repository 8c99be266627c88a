"""Parts of the trainer, in the programs of others."""
