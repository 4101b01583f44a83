from __future__ import annotations

from turnstile.trajectory.violation import Violation


def test_a_line_of_output_is_code_rollout_sequence_index_and_message():
    assert str(Violation("E201", "ro-1", 0, 7, "gap at token 7")) == "E201 ro-1 0 7 gap at token 7"
    assert str(Violation("E107", "ro-1", None, None, "no reason")) == "E107 ro-1 - - no reason"
