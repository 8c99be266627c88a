"""Two optimizers with one loss: Muon for the weight matrices, AdamW for the rest. Needs torch 2.9.

python examples/muon.py                        in this process
castoff launch -n 2 -- python examples/muon.py on two ranks; torchrun works, too
"""

import sys

import torch
from own_model import Spirals
from torch import nn
from torch.optim import AdamW, Optimizer

from castoff.trainers import train


class MuonSpirals(Spirals):
    def optimizers(self, model: nn.Module) -> dict[str, Optimizer]:
        matrices = [each for each in model.parameters() if each.dim() == 2]
        rest = [each for each in model.parameters() if each.dim() != 2]
        return {"muon": torch.optim.Muon(matrices, lr=0.02), "adamw": AdamW(rest, lr=0.01)}


if __name__ == "__main__":
    trained = train("examples/muon.yaml", MuonSpirals(), sys.argv[1:])
    if trained.metrics:
        print(f"test accuracy {trained.metrics['accuracy']:.4f}")
