"""The model and the data of resnet_ddp.py and resnet_motley.py."""

import torch
import torch.nn.functional as F
from torch import nn

SIZE, FIGURES, WIDTHS, BLOCKS, GROUPS = 32, 10, (16, 32, 64), 2, 8


def figures(x, y):
    """Of each where it is."""
    greater, less = torch.maximum(x.abs(), y.abs()), torch.minimum(x.abs(), y.abs())
    square_of_distance, upright, level = x * x + y * y, torch.sin(6 * x), torch.sin(6 * y)
    disc, ring, diamond = square_of_distance < 1, (square_of_distance - 0.7).abs() < 0.3, x.abs() + y.abs() < 1.1
    square, frame = greater < 0.9, (greater - 0.7).abs() < 0.2
    plus, cross = (less < 0.25) & (greater < 1), (greater - less < 0.3) & (greater < 1)
    return disc, ring, diamond, square, frame, plus, cross, upright > 0, level > 0, upright * level > 0


class Pictures(torch.utils.data.Dataset):
    """Noisy pictures, each of a figure somewhere, of some size and colour, and which it is: all by the index alone."""

    def __init__(self, first, count):
        self._first, self._count = first, count
        self._y, self._x = torch.meshgrid(torch.linspace(-1, 1, SIZE), torch.linspace(-1, 1, SIZE), indexing="ij")

    def __len__(self):
        return self._count

    def __getitem__(self, index):
        index += self._first
        random_numbers = torch.Generator().manual_seed(index)
        right, down, size, *colour = torch.rand(6, generator=random_numbers).tolist()
        size, colour, figure = 0.5 + 0.3 * size, torch.tensor(colour).view(3, 1, 1), index % FIGURES
        inside = figures((self._x - 0.3 * right + 0.15) / size, (self._y - 0.3 * down + 0.15) / size)[figure]
        noise = 0.2 * torch.randn(3, SIZE, SIZE, generator=random_numbers)
        return torch.where(inside, 0.5 + 0.5 * colour, -0.5 * colour) + noise, figure


def convolution(inputs, outputs, size, stride):
    # No BatchNorm: a batch's statistics depend on how samples are dealt between ranks.
    conv = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(conv, nn.GroupNorm(GROUPS, outputs))


class Block(nn.Module):
    # No ReLU: at its bend a rounding error, which another deal of samples makes, switches a whole gradient.
    def __init__(self, inputs, outputs):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        first, second = convolution(inputs, outputs, 3, stride), convolution(outputs, outputs, 3, 1)
        self.residual = nn.Sequential(first, nn.SiLU(), second)
        self.shortcut = nn.Identity() if inputs == outputs else convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        return F.silu(self.shortcut(x) + self.residual(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(convolution(3, WIDTHS[0], 3, 2), nn.SiLU())
        widths = [width for width in WIDTHS for _ in range(BLOCKS)]
        self.blocks = nn.Sequential(*(Block(inputs, outputs) for inputs, outputs in zip([WIDTHS[0], *widths], widths)))
        self.head = nn.Linear(WIDTHS[-1], FIGURES)

    def forward(self, pictures):
        return self.head(self.blocks(self.stem(pictures)).mean(dim=(2, 3)))


def make_resnet():
    return ResNet()


def losses_of(logits, targets):
    """Of each sample."""
    return F.cross_entropy(logits, targets, reduction="none")


@torch.no_grad()
def accuracy_of(model, data):
    device = next(model.parameters()).device
    right = [model(x.to(device)).argmax(dim=1).cpu() == y for x, y in torch.utils.data.DataLoader(data, batch_size=100)]
    return torch.cat(right).double().mean().item()
