from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer
from llguidance.hf import from_tokenizer
from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from hazardlens.schema import FieldSchema, GroundedSchema

CORPUS = '{"notes": "A worker wears no helmet.", "hazard": "none", "detections": [{"id": 0, "severity": "low"}]}'


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "</s>", "<image>", "<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([CORPUS] * 10, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def tokens(bpe: Tokenizer) -> LLTokenizer:
    marks = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=bpe, **marks)
    return from_tokenizer(fast, n_vocab=640)


@pytest.fixture(scope="session")
def accepts(tokens: LLTokenizer) -> Callable[[GroundedSchema, str], bool]:
    def check(schema: GroundedSchema, text: str) -> bool:
        matcher = LLMatcher(tokens, schema.grammar())
        ids = tokens.tokenize_str(text)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()

    return check


@pytest.fixture(scope="session")
def sample(tokens: LLTokenizer, bpe: Tokenizer) -> Callable[[GroundedSchema, random.Random], str]:
    mask = allocate_token_bitmask(1, 640)

    def walk(schema: GroundedSchema, rng: random.Random) -> str:
        matcher = LLMatcher(tokens, schema.grammar())
        ids: list[int] = []
        while not matcher.is_stopped():
            fill_next_token_bitmask(matcher, mask)
            allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
            chosen = int(rng.choice(allowed))
            if chosen == tokens.eos_token:
                break
            # Neither a special token nor a row beyond the tokenizer may ever be let through.
            assert 4 <= chosen < bpe.get_vocab_size()
            assert matcher.consume_token(chosen), matcher.get_error()
            ids.append(chosen)
        assert not matcher.is_error(), matcher.get_error()
        return tokens.decode_bytes(ids).decode()

    return walk


@pytest.fixture(scope="session")
def most_tokens(tokens: LLTokenizer, bpe: Tokenizer) -> Callable[[GroundedSchema, random.Random], int]:
    mask = allocate_token_bitmask(1, 640)
    sizes = np.array([len(tokens.decode_bytes([token])) for token in range(bpe.get_vocab_size())])

    def walk(schema: GroundedSchema, rng: random.Random) -> int:
        """Count the tokens of a loop that appends forced tokens, and else takes the shortest token there is."""
        matcher = LLMatcher(tokens, schema.grammar())
        count = 0
        while not matcher.is_stopped():
            chosen = matcher.compute_ff_tokens()
            if not chosen:
                fill_next_token_bitmask(matcher, mask)
                allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
                shortest = sizes[allowed] == sizes[allowed].min()
                chosen = [int(rng.choice(allowed[shortest]))]
            assert matcher.consume_tokens(chosen), matcher.get_error()
            count += len(chosen)
        return count

    return walk


def with_field(fragment: Any, **root: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"x": fragment},
        "required": ["x"],
        "additionalProperties": False,
        **root,
    }


@pytest.fixture
def one_field() -> Callable[..., FieldSchema]:
    def load(fragment: Any, **root: Any) -> FieldSchema:
        return FieldSchema.load(with_field(fragment, **root))

    return load
