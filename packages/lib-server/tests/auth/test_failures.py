from lib.testing.clock import ManualClock
from lib_server.auth.failures import MAX_ADDRESSES, FailureLimit


def a_limit(clock: ManualClock) -> FailureLimit:
    return FailureLimit(max_failures=3, window_s=60, clock=clock)


def test_an_address_that_guesses_waits_and_others_do_not() -> None:
    clock = ManualClock()
    limit = a_limit(clock)
    for n in range(3):
        assert limit.retry_after_s("192.0.2.1", f"Bearer {n}") is None
        limit.note_failure("192.0.2.1", f"Bearer {n}")
        clock.advance(5)

    assert limit.retry_after_s("192.0.2.1", "Bearer 4") == 45
    assert limit.retry_after_s("::ffff:192.0.2.1", "Bearer 4") == 45
    assert limit.retry_after_s("192.0.2.2", "Bearer 4") is None
    clock.advance(45)
    assert limit.retry_after_s("192.0.2.1", "Bearer 4") is None


def test_a_network_of_64_bits_is_one_address() -> None:
    limit = a_limit(ManualClock())
    for n in range(3):
        limit.note_failure(f"2001:db8::{n}", "Bearer x")

    assert limit.retry_after_s("2001:db8::ffff", "Bearer y") == 60
    assert limit.retry_after_s("2001:db8:0:1::1", "Bearer y") is None


def test_a_credential_at_work_is_not_locked_out_by_others_of_its_address() -> None:
    clock = ManualClock()
    limit = a_limit(clock)
    limit.note_admission("Bearer good")
    for n in range(3):
        limit.note_failure("192.0.2.1", f"Bearer {n}")

    assert limit.retry_after_s("192.0.2.1", "Bearer good") is None
    assert limit.retry_after_s("192.0.2.1", None) == 60
    limit.note_failure("192.0.2.1", "Bearer good")
    assert limit.retry_after_s("192.0.2.1", "Bearer good") == 60


def test_a_missing_credential_is_no_guess() -> None:
    limit = a_limit(ManualClock())
    for _ in range(10):
        limit.note_failure("192.0.2.1", None)

    assert limit.retry_after_s("192.0.2.1", None) is None


def test_memory_for_addresses_is_bounded() -> None:
    limit = a_limit(ManualClock())
    for n in range(MAX_ADDRESSES + 3):
        limit.note_failure(f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", "Bearer x")

    assert len(limit._windows) == MAX_ADDRESSES  # pyright: ignore[reportPrivateUsage] - no caller sees the bound
