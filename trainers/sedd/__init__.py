"""Score-entropy discrete diffusion of proteins (Lou, Meng, Ermon, arXiv 2310.16834)."""
