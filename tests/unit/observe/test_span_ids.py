from lib.observe import span_id_of, trace_id_of


def test_ids_are_those_that_every_release_derives():
    assert trace_id_of("run-1") == "4e65d3fbe8ad6535681b021b30785b12"
    assert span_id_of("run-1", "tool", "tool/1/a") == "5a71077d6a13a0d7"


def test_a_key_that_is_no_unicode_text_has_an_id_too():
    assert len(span_id_of("run-1", "tool", "tool/1/\ud800")) == 16


def test_no_id_is_zero():
    from lib.observe.span import non_zero

    assert non_zero("0" * 16) == "0000000000000001"
    assert non_zero("00000000000000a0") == "00000000000000a0"
