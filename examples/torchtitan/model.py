"""A Llama of 200,000 parameters, from torchtitan's parts."""

from functools import partial
from typing import Any

import cpu
from torch import nn
from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
from torchtitan.models.common.attention import ScaledDotProductAttention
from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
from torchtitan.models.llama3 import parallelize_llama
from torchtitan.models.llama3.model import Llama3Model, Llama3TransformerBlock
from torchtitan.protocols.model_spec import ModelSpec

WIDTH, LAYERS, HEADS, CONTEXT = 64, 2, 4, 64


def parallelize(model: nn.Module, **options: Any) -> nn.Module:
    model = parallelize_llama(model, **options)
    if not cpu.ACCELERATOR:
        cpu.sum_gradients(model)
    return model


def tiny_llama(vocabulary: int) -> ModelSpec:
    linear = {"weight": partial(nn.init.trunc_normal_, std=0.02), "bias": nn.init.zeros_}
    norm = RMSNorm.Config(normalized_shape=WIDTH, param_init={"weight": nn.init.ones_})
    rope = ComplexRoPE.Config(dim=WIDTH // HEADS, max_seq_len=CONTEXT, theta=10_000)
    block = Llama3TransformerBlock.Config(
        attention_norm=norm,
        ffn_norm=norm,
        attention=make_gqa_config(
            dim=WIDTH,
            n_heads=HEADS,
            wqkv_param_init=linear,
            wo_param_init=linear,
            # torchtitan's other kinds need a GPU for the backward pass
            inner_attention=ScaledDotProductAttention.Config(),
            rope=rope,
        ),
        feed_forward=make_ffn_config(
            dim=WIDTH, hidden_dim=4 * WIDTH, w1_param_init=linear, w2w3_param_init=linear
        ),
    )
    model = Llama3Model.Config(
        dim=WIDTH,
        vocab_size=vocabulary,
        tok_embeddings=Embedding.Config(
            num_embeddings=vocabulary, embedding_dim=WIDTH, param_init={"weight": nn.init.normal_}
        ),
        norm=norm,
        lm_head=Linear.Config(in_features=WIDTH, out_features=vocabulary, param_init=linear),
        layers=[block] * LAYERS,
    )
    return ModelSpec(
        name="llama3",
        flavor="tiny",
        model=model,
        parallelize_fn=parallelize,
        pipelining_fn=None,
        post_optimizer_build_fn=None,
        state_dict_adapter=None,
    )
