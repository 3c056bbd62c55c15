"""The samples of the partition drill prove something only if some were taken."""

import pytest

from durable.drills.region_loss import Samples


@pytest.mark.parametrize(
    ("samples", "failure", "met", "seen"),
    [
        (Samples(count=3), None, True, "3 samples"),
        (Samples(), None, False, "0 samples"),
        (Samples(count=3, broken={"S1"}), None, False, "3 samples, S1"),
        (Samples(count=3), OSError("gone"), False, "3 samples, sampling failed: gone"),
    ],
)
def test_only_samples_without_a_finding_meet_it(
    samples: Samples, failure: Exception | None, met: bool, seen: str
) -> None:
    judged = samples.judge(failure)
    assert (judged.met, judged.seen) == (met, seen)
