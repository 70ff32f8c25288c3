"""TransformerLens adapters for the video models that it lacks.

Where this package is installed, TransformerLens finds them by itself through its entry-point group
`transformer_lens.architectures`, when a bridge is built around a loaded model
(`build_bridge_from_module`). Its `boot_transformers` looks a checkpoint's class up in another
table, before it looks for entry points (version 4.3); call `register` first to boot by name.
"""

from __future__ import annotations


def register() -> None:
    """Make TransformerLens know these models everywhere, also when it boots them by name."""
    from transformer_lens.factories.architecture_adapter_factory import (
        SUPPORTED_ARCHITECTURES,
        ArchitectureAdapterFactory,
    )
    from transformer_lens.utilities.architectures import MULTIMODAL_ARCHITECTURES

    from hooks.backends.transformer_lens_adapters.llava_next_video import (
        LlavaNextVideoArchitectureAdapter,
    )
    from hooks.backends.transformer_lens_adapters.qwen2_vl import Qwen2VLArchitectureAdapter

    # Before, or the entry points would look like an attempt to replace what is registered here.
    ArchitectureAdapterFactory.discover_entry_points()
    for name, adapter in (
        ("Qwen2VLForConditionalGeneration", Qwen2VLArchitectureAdapter),
        ("LlavaNextVideoForConditionalGeneration", LlavaNextVideoArchitectureAdapter),
    ):
        ArchitectureAdapterFactory.register_adapter(name, adapter)
        SUPPORTED_ARCHITECTURES[name] = adapter
        # Says with which class of transformers a checkpoint is loaded.
        MULTIMODAL_ARCHITECTURES.add(name)
