"""A stock copy of a model beside the prepared one, over the same weights: of an 8B target there is room for one set of
them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from ..progress import Progress, silent

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from ..models.loading import LoadedModel


def ready_with_stock(loaded: LoadedModel, progress: Progress = silent) -> PreTrainedModel:
    """Make `loaded` ready, and return the model as transformers made it, on which nothing of that shows.

    Its weights are the very tensors of `loaded`, or parts of them where projections were joined. Only weights that
    preparation lays out anew, as it does on the CPU, are there twice. To be called before anything else has asked for
    `loaded.prepared`."""
    assert "prepared" not in loaded._attached, "a model that is ready has lost its stock modules"
    model = loaded.model
    originals = list(model.modules())
    memo: dict[int, object] = {
        id(weight): None for weight in model.parameters()
    }  # a copy that held them would keep what `prepare` replaces
    stock = copy.deepcopy(model, memo)
    loaded.make_ready(progress)
    for original in originals:
        twin = memo[id(original)]
        for name, weight in original._parameters.items():
            twin._parameters[name] = weight  # type: ignore[attr-defined]
    return stock
