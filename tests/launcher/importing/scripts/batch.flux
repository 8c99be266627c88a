#!/bin/bash
# flux: --job-name=flux
# flux: -N2 -n 8
# flux: -c 4
# flux: --gpus-per-slot=1
# flux: -t 30m
# flux: -q pbatch --bank=guests
# flux: --setattr=thp=always

module load rocm
flux run -N2 -n8 -c4 -g1 -o mpibind=off python train.py
