"""Counters and times in the text format of Prometheus."""

import re

from engram.serve.metrics import BUCKETS, Metrics, prometheus_text


def test_every_line_is_a_comment_or_a_sample_and_every_name_has_one_type() -> None:
    metrics = Metrics()
    metrics.time("observe", 0.003)
    text = prometheus_text({name: (metrics, {"queued": 3}, {"net": 10}) for name in ("a", "b")})
    sample = re.compile(r'[a-z_]+\{learner="[ab]"(,(le|part)="[^"]+")?\} [0-9.e+]+')
    for line in text.splitlines():
        assert line.startswith(("# HELP ", "# TYPE ")) or sample.fullmatch(line), line
    types = re.findall(r"# TYPE (\S+)", text)
    assert len(types) == len(set(types))
    assert text.endswith("\n")


def test_times_are_counted_in_buckets_that_include_the_smaller_ones() -> None:
    metrics = Metrics()
    for seconds in (0.0005, 0.001, 0.02, 60.0):
        metrics.time("predict", seconds)
    text = prometheus_text({"a": (metrics, {}, {})})
    found = re.findall(r'engram_predict_seconds_bucket\{learner="a",le="([^"]+)"\} (\d+)', text)
    assert [bound for bound, _ in found] == [*map(str, BUCKETS), "+Inf"]
    slow = [sum(seconds <= float(bound) for seconds in (0.0005, 0.001, 0.02, 60.0)) for bound, _ in found]
    assert [int(count) for _, count in found] == slow
    assert 'engram_predict_seconds_sum{learner="a"} 60.021500' in text
    assert 'engram_predict_seconds_count{learner="a"} 4' in text


def test_large_numbers_keep_all_their_digits() -> None:
    text = prometheus_text({"a": (Metrics(), {"journal_bytes": 123_456_789, "seconds": 0.25}, {"total": 12_345_678})})
    assert 'engram_journal_bytes{learner="a"} 123456789\n' in text
    assert 'engram_seconds{learner="a"} 0.25\n' in text
    assert 'engram_bytes{learner="a",part="total"} 12345678\n' in text
