"""Table 1 of the GridToM paper (ICML 2025) for the two steered models: TB, FB, Both in %.

Qwen2-VL's text-only first-order TB is not legible in our copy of the paper and left out.
"""

from __future__ import annotations

Numbers = tuple[float | None, float, float]
# (family, setting, order, steered) -> TB, FB, Both.
PAPER: dict[tuple[str, str, int, bool], Numbers] = {
    ("llava-next-video", "multimodal", 1, False): (53.2, 42.8, 0.8),
    ("llava-next-video", "multimodal", 2, False): (48.7, 39.8, 0.2),
    ("llava-next-video", "multimodal", 1, True): (63.8, 51.6, 22.0),
    ("llava-next-video", "multimodal", 2, True): (61.1, 42.2, 10.2),
    ("qwen2-vl", "multimodal", 1, False): (26.6, 97.0, 23.6),
    ("qwen2-vl", "multimodal", 2, False): (64.3, 37.8, 15.4),
    ("qwen2-vl", "multimodal", 1, True): (60.4, 97.4, 31.2),
    ("qwen2-vl", "multimodal", 2, True): (75.1, 46.6, 24.2),
    ("llava-next-video", "video", 1, False): (50.8, 48.2, 0.4),
    ("llava-next-video", "video", 2, False): (50.1, 41.2, 0.3),
    ("llava-next-video", "video", 1, True): (54.4, 51.2, 16.4),
    ("llava-next-video", "video", 2, True): (55.9, 42.2, 12.3),
    ("qwen2-vl", "video", 1, False): (52.2, 48.6, 5.2),
    ("qwen2-vl", "video", 2, False): (49.1, 40.0, 2.1),
    ("qwen2-vl", "video", 1, True): (53.8, 52.2, 18.6),
    ("qwen2-vl", "video", 2, True): (52.1, 46.0, 19.5),
    ("llava-next-video", "text", 1, False): (40.8, 56.4, 0.0),
    ("llava-next-video", "text", 2, False): (49.3, 50.1, 0.7),
    ("qwen2-vl", "text", 1, False): (None, 66.2, 14.8),
    ("qwen2-vl", "text", 2, False): (61.4, 52.7, 16.3),
}
