"""python tools/export_head.py eagle3 assets/heads/eagle3 OUT: a head that is stored compactly (8 bits, its target's
output rows left out) as plain bfloat16 in the speculators format, for servers that read nothing else. The target is the
bundled model, or the one given after --target."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from engine.heads.build import build
from engine.heads.compact import with_output
from engine.heads.formats import KINDS, read_spec, read_tensors
from engine.models.loading import DEFAULT_TARGET, load
from engine.training.heads import save_head


def main() -> None:
    """Read the head, write it whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("head", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--target", default=DEFAULT_TARGET)
    options = parser.parse_args()
    loaded = load(options.target)
    embedding, config = loaded.model.get_input_embeddings().weight, loaded.model.config.get_text_config()
    spec = read_spec(options.head, options.kind, config.num_hidden_layers)
    head = build(spec, with_output(read_tensors(options.head), spec, embedding), config.hidden_size, len(embedding))
    save_head(head, options.out, loaded.info.name, spec.block_size - 1 if options.kind == "dflash" else 4)
    print(f"{options.out}: {sum(path.stat().st_size for path in options.out.iterdir()) / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
