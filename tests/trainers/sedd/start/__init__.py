"""Tests of how a diffusion of proteins is started."""
