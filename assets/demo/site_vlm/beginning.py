"""What the language model begins with: all that the tower's heads know, and where an object's cell is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from transformers import Idefics3ForConditionalGeneration, PreTrainedTokenizerFast

from .architecture import IMAGE_TOKENS, SCALE
from .tower import Heads

_BOTH = 2
"""Pictures of a question with objects: the whole, and the sheet."""
_RIDGE, _SHARP = 100.0, 1.5
"""How strongly the regression is held back, and how large the lookup's weights begin: a cell gets over nine tenths."""
LOOKUP = ("layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj")
"""The matrices of the language model that begin as a lookup."""


def begin(
    model: Idefics3ForConditionalGeneration,
    tokenizer: PreTrainedTokenizerFast,
    heads: Heads,
    seen: Sequence[torch.Tensor],
) -> None:
    """Let the connector begin with what the tower's heads know, as large as the embeddings of words.

    Its first outputs are those of the heads for a cell, and those for patches, summed in each quarter of the cell; so
    that the language model need not find out again what the tower has learned to tell. The next ones say which cell of
    which picture it is, by which the number of an object finds the object's cell.

    Args:
        model: The model, its tower finished.
        tokenizer: Its tokenizer.
        heads: The tower's.
        seen: What the tower sees of some questions' pictures, (pictures, patches, width) each.
    """
    weight = model.model.connector.modality_projection.proj.weight
    rows = [head.weight for head in heads.cell.values()]
    half = SCALE // 2
    for head in heads.patch.values():
        for row, column in itertools.product((0, half), (0, half)):
            block = head.weight.new_zeros(len(head.weight), SCALE, SCALE, head.weight.shape[1])
            block[:, row : row + half, column : column + half] = head.weight[:, None, None]
            rows.append(block.flatten(1))
    both = torch.stack([one for one in seen if len(one) == _BOTH])
    with torch.no_grad():
        known = torch.cat([*rows, _which_cell(model, both)])
        weight[: len(known)] = known
        said = model.model.connector(torch.cat(seen))
        scale = model.get_input_embeddings().weight.std() / said.flatten(0, 1).std(dim=0)
        weight *= scale[:, None]
        cells = model.model.connector(both[:, 1]).mean(dim=0)[:, len(known) - IMAGE_TOKENS : len(known)]
        _begin_lookup(model, tokenizer, len(known) - _BOTH * IMAGE_TOKENS, cells)


def _which_cell(model: Idefics3ForConditionalGeneration, both: torch.Tensor) -> torch.Tensor:
    """Weights that tell the cells of two pictures apart, by ridge regression, (2 * cells, connector's inputs).

    Args:
        model: The model.
        both: What the tower sees of questions of two pictures, (questions, 2, patches, width).
    """
    inputs = model.model.connector.pixel_shuffle(both.flatten(0, 1), SCALE).flatten(0, 1)
    cells = torch.eye(_BOTH * IMAGE_TOKENS).repeat(len(both), 1)
    inputs, cells = inputs - inputs.mean(dim=0), cells - cells.mean(dim=0)
    ridge = _RIDGE * torch.eye(inputs.shape[1])
    return torch.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ cells).T


def _begin_lookup(
    model: Idefics3ForConditionalGeneration, tokenizer: PreTrainedTokenizerFast, first: int, cells: torch.Tensor
) -> None:
    """Let the first head begin by looking up the cell of the sheet that a number names.

    A number begins with what the connector says of its cell, and the head compares just that, in those of its
    dimensions that turn slowest with distance, so that it does so from the prompt and from the answer alike. Numbers
    have it where whole pictures say which cell is theirs, lest they be found in place of the cell.

    Args:
        model: The model.
        tokenizer: Its tokenizer.
        first: The first of the connector's outputs that tell cells apart, the whole picture's ahead of the sheet's.
        cells: What it says of each cell of the sheet, (cells, cells).
    """
    count = len(cells)
    named, found = slice(first, first + count), slice(first + count, first + 2 * count)
    words = model.get_input_embeddings().weight
    words[:, first : first + 2 * count] = 0.0
    for number, own in enumerate(cells - cells.mean(dim=0)):
        (token,) = tokenizer(str(number), add_special_tokens=False)["input_ids"]
        words[token, named] = own
    attention = model.model.text_model.layers[0].self_attn
    turning = torch.arange(attention.head_dim) % (attention.head_dim // 2)
    slowest = turning.argsort(stable=True)[-count:]
    attention.q_proj.weight[: attention.head_dim] = 0.0
    attention.q_proj.weight[slowest, named] = _SHARP * torch.eye(count)
    attention.k_proj.weight[slowest] = 0.0
    attention.k_proj.weight[slowest, found] = _SHARP * torch.eye(count)
