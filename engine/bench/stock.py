"""A stock copy of a model next to the prepared one, over the same weights: an 8B target fits into memory only once."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from ..progress import Progress, silent

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..loading.loading import LoadedModel


def ready_with_stock(loaded: LoadedModel, progress: Progress = silent) -> PreTrainedModel:
    """Prepare `loaded`, and return the model as transformers made it, unaffected.

    Its weights are the very tensors of `loaded`, or parts of them where projections were joined. Only weights that
    preparation lays out anew, as on the CPU, exist twice. Call it before anything else uses `loaded.prepared`."""
    assert "prepared" not in loaded._attached, "a model that is ready has lost its stock modules"
    model = loaded.model
    originals = list(model.modules())
    memo: dict[int, object] = {
        id(weight): None for weight in model.parameters()
    }  # a copy with them would keep what `prepare` replaces
    stock = copy.deepcopy(model, memo)
    loaded.make_ready(progress)
    for original in originals:
        twin = memo[id(original)]
        for name, weight in original._parameters.items():
            twin._parameters[name] = weight  # type: ignore[attr-defined]
    return stock
