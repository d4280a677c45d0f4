"""What becomes of what a service asks of others, by what was said of it."""

from __future__ import annotations

import pytest

from relive.errors import UsageError
from relive.model.capsule import EgressWay
from relive.operations.observing import choose_egress
from relive.operations.units import AdoptParams, _options

THROUGH, BESIDE = EgressWay.THROUGH, EgressWay.BESIDE


@pytest.mark.parametrize(
    ("is_recorded", "way", "chosen", "options"),
    [
        (None, None, (True, BESIDE, True), []),
        (True, None, (True, THROUGH, False), ["--record-egress", "--egress", "through"]),
        (True, BESIDE, (True, BESIDE, False), ["--record-egress", "--egress", "beside"]),
        (None, BESIDE, (True, BESIDE, False), ["--record-egress", "--egress", "beside"]),
        (None, THROUGH, (True, THROUGH, False), ["--record-egress", "--egress", "through"]),
        (False, None, (False, BESIDE, False), ["--no-record-egress"]),
    ],
)
def test_only_without_a_word_may_the_service_start_without(is_recorded, way, chosen, options):
    assert choose_egress(is_recorded, way) == chosen
    params = AdoptParams(unit="shop", record_egress=is_recorded, egress=way)
    assert _options(params) == ["--every", "30s", *options]


def test_beside_a_sealed_store_nothing_is_recorded_in_clear_without_a_word():
    assert choose_egress(None, None, is_sealed=True) == (False, BESIDE, True)
    assert choose_egress(None, BESIDE, is_sealed=True) == (True, BESIDE, False)


def test_a_way_of_what_is_not_to_be_recorded_cannot_be_meant():
    with pytest.raises(UsageError, match="exclude each other"):
        choose_egress(False, BESIDE)
