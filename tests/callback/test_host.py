"""The user's program comes first: whatever happens to the plugin or around it, the model's loop goes on."""

import copy
import gc
import logging
import pickle
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import hazardlens
from hazardlens.callback.hooks import Hook
from hazardlens.testing import FakeVlm, FunctionVlm
from hazardlens.testing.video import draw_video, number_image
from tests.callback.conftest import ours
from tests.callback.sights import PIPELINE, answer, vlm
from tests.callback.test_attach import RECORD
from tests.callback.test_live import Gate, taken, wait_until

EVERY = {**PIPELINE, "ask": {"every_s": 0.1}}


def fail(*_: Any, **__: Any) -> Any:
    raise RuntimeError("out of order")


def test_what_a_vlm_raises_is_a_status(load: Callable, clip: Path) -> None:
    model = load()
    with hazardlens.attach(model, EVERY, vlm=FunctionVlm(fail)) as plugin:
        results = model.predict(clip)
    assert {(one.record.vlm.status, one.record.vlm.reason) for one in results} == {
        ("error", "RuntimeError: out of order")
    }
    assert dict(plugin.counts.answers) == {"error": 25}


@pytest.mark.parametrize(
    "place",
    [
        "hazardlens.callback.run.to_detections",
        "hazardlens.callback.run.places",
        "hazardlens.merge.policy.AskPolicy.decide",
        "hazardlens.merge.join.Joiner.join",
    ],
)
def test_what_fails_inside_is_a_status_one_line_and_a_count(
    load: Callable, clip: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, place: str
) -> None:
    monkeypatch.setattr(place, fail)
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        results = model.track(clip, stream=False)
    assert len(results) == 25
    for result in results:
        assert (result.record.vlm.status, result.record.vlm.reason) == ("error", "RuntimeError: out of order")
        assert list(RECORD.iter_errors(result.record.to_dict())) == []
        assert result.detection_fields == [None] * len(result)
        assert "no answer: error" in result.verbose()
    assert plugin.counts.failures >= 25
    assert caplog.text.count("out of order; the model goes on") == 1


def test_an_answer_that_cannot_be_joined_is_a_status(
    load: Callable, clip: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hazardlens.merge.join.apply_rules", fail)
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        results = model.predict(clip)
    assert results[0].record.vlm.status == "error"
    assert {record.vlm.status for record in plugin.records()} == {"error"}
    assert plugin.counts.failures == 3


@pytest.mark.parametrize("place", ["take_over", "__init__"])
def test_a_call_that_cannot_be_followed_gives_plain_results(
    load: Callable, clip: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, place: str
) -> None:
    from ultralytics.engine.results import Results

    target = {
        "take_over": "hazardlens.callback.run.StampedFiles.take_over",
        "__init__": "hazardlens.callback.run.Run.__init__",
    }
    monkeypatch.setattr(target[place], fail)
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        results = model.predict(clip)
    assert [type(result) for result in results] == [Results] * 25
    assert plugin.counts.failures == 1
    assert "on_predict_start: RuntimeError: out of order; the model goes on" in caplog.text


@pytest.mark.parametrize("place", ["WatchedVideo.__init__", "StampedFiles._collect"])
def test_a_video_that_cannot_be_followed_gives_plain_results(
    load: Callable, clip: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any, place: str
) -> None:
    breaks = fail if place == "WatchedVideo.__init__" else lambda self: []
    monkeypatch.setattr(f"hazardlens.callback.stamps.{place}", breaks)
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        results = model.predict(clip)
    assert {type(result).__name__ for result in results} == {"Results"}
    assert len(results) == plugin.counts.failures == 25
    if breaks is fail:
        assert "clip.mkv cannot be followed: RuntimeError: out of order" in caplog.text


def test_a_clock_that_fails_is_not_the_hosts_trouble(load: Callable, caplog: Any) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm(), clock=fail) as plugin:
        results = model.track(number_image(3, (96, 64)), persist=True)
    assert len(results) == 1
    assert plugin.counts.failures == 1


def test_what_a_callable_raises_is_counted(load: Callable, clip: Path, caplog: Any) -> None:
    model = load()
    with hazardlens.attach(model, EVERY, vlm=vlm(), on_record=fail) as plugin:
        results = model.predict(clip)
    assert {one.record.vlm.status for one in results} == {"ok"}
    assert plugin.counts.failures == 25
    assert caplog.text.count("out of order; the model goes on") == 1


def leave_by_break(run: Any) -> None:
    for index, _ in enumerate(run):
        if index == 3:
            break


def leave_by_error(run: Any) -> None:
    def divide() -> None:
        for index, _ in enumerate(run):
            1 / (3 - index)

    with pytest.raises(ZeroDivisionError):
        divide()


def leave_by_interrupt(run: Any) -> None:
    def interrupt() -> None:
        for index, _ in enumerate(run):
            if index == 3:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupt()


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_error, leave_by_interrupt])
@pytest.mark.parametrize("wait", [True, False])
def test_a_loop_can_be_left_and_the_model_used_again(load: Callable, clip: Path, leave: Callable, wait: bool) -> None:
    model = load()
    plugin = hazardlens.attach(model, EVERY, vlm=vlm(), wait=wait)
    leave(model.track(clip, stream=True))
    gc.collect()
    results = list(model.track(clip, stream=True))
    assert [one.record.frame for one in results] == list(range(25))
    plugin.close()
    records = plugin.records()
    assert len(records) == plugin.counts.asked
    assert {record.vlm.status for record in records} == {"ok"}
    if wait:
        assert [record.frame for record in records] == [0, 1, 2, 3, *range(25)]


INTERRUPTED = """
import signal, sys, threading, time
import hazardlens
from hazardlens.testing import FunctionVlm
from ultralytics import YOLO
asked = threading.Event()
def never(question):
    asked.set()
    time.sleep(60)
model = YOLO(sys.argv[1])
def interrupt():
    asked.wait()
    time.sleep(0.3)
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
threading.Thread(target=interrupt, daemon=True).start()
try:
    with hazardlens.attach(model, {"schema": "hazard"}, vlm=FunctionVlm(never)) as plugin:
        list(model.track(sys.argv[2], stream=True, imgsz=64, verbose=False))
except KeyboardInterrupt:
    print("interrupted", [(record.frame, record.vlm.status, record.vlm.reason) for record in plugin.records()])
"""


def test_ctrl_c_while_an_answer_is_waited_for_reaches_the_user_and_the_question_is_not_lost(
    sighted: Callable, clip: Path
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, sighted("detect"), clip]
    run = subprocess.run(command, capture_output=True, text=True, timeout=200)
    said = "interrupted [(0, 'error', 'the plugin was closed before the answer came')]"
    assert said in run.stdout, run.stderr
    assert run.returncode == 0


LEFT_OPEN = """
import sys, time
import hazardlens
from hazardlens.testing import FunctionVlm
from ultralytics import YOLO
model = YOLO(sys.argv[1])
plugin = hazardlens.attach(model, {"schema": "hazard"}, vlm=FunctionVlm(lambda question: time.sleep(90)), wait=False)
print(len(list(model.track(sys.argv[2], stream=True, imgsz=64, verbose=False))), flush=True)
"""


def test_a_program_ends_although_an_answer_is_under_way(sighted: Callable, clip: Path) -> None:
    command = [sys.executable, "-c", LEFT_OPEN, sighted("detect"), clip]
    run = subprocess.run(command, capture_output=True, text=True, timeout=80)
    assert (run.returncode, run.stdout.split()[-1]) == (0, "25"), run.stderr


def test_a_dropped_model_ends_all_by_itself(load: Callable, clip: Path) -> None:
    model = load()
    plugin = hazardlens.attach(model, EVERY, vlm=vlm())
    leave_by_break(model.track(clip, stream=True))
    there = weakref.ref(model)
    assert ours()
    del model
    gc.collect()
    assert there() is None
    wait_until(lambda: not ours())
    assert len(plugin.records()) == plugin.counts.asked == 4
    plugin.close()


def test_a_plugin_that_nobody_keeps_goes_on_as_long_as_its_model(load: Callable, clip: Path) -> None:
    def attached() -> Any:
        model = load()
        hazardlens.attach(model, PIPELINE, vlm=vlm())
        return model.track(clip, stream=True)

    run = attached()
    gc.collect()
    assert [result.record.vlm.status for result in run].count("ok") == 3
    del run
    gc.collect()
    wait_until(lambda: not ours())


def test_an_answer_under_way_when_the_model_is_dropped_is_handed_out(load: Callable, clip: Path) -> None:
    model, gate = load(), Gate()
    plugin = hazardlens.attach(model, PIPELINE, vlm=gate, wait=False)
    taken(model.track(clip, stream=True), 2)
    del model
    gc.collect()
    gate._let.release()
    wait_until(lambda: not ours())
    assert [(record.frame, record.vlm.status) for record in plugin.records()] == [(0, "ok")]


def test_detaching_does_not_wait_and_loses_nothing(load: Callable, clip: Path) -> None:
    model, gate = load(), Gate()
    plugin = hazardlens.attach(model, PIPELINE, vlm=gate, wait=False)
    taken(model.track(clip, stream=True), 2)
    plugin.detach()
    assert plugin.records() == []
    assert type(model.predict(clip)[0]).__name__ == "Results"
    gate._let.release()
    wait_until(lambda: not ours())
    assert [(record.frame, record.vlm.status) for record in plugin.records()] == [(0, "ok")]


def test_closing_gives_up_on_an_answer_that_does_not_come(load: Callable, clip: Path) -> None:
    model, gate = load(), Gate()
    plugin = hazardlens.attach(model, PIPELINE, vlm=gate, wait=False)
    taken(model.track(clip, stream=True), 2)
    gate.asked.clear()
    threading.Timer(0.3, gate._let.release).start()
    plugin.close(wait_s=0.05)
    (record,) = plugin.records()
    assert (record.frame, record.vlm.status) == (0, "error")
    assert record.vlm.reason == "the plugin was closed before the answer came"


def test_closing_in_the_midst_of_a_loop_leaves_the_rest_plain(load: Callable, clip: Path) -> None:
    model = load()
    plugin = hazardlens.attach(model, PIPELINE, vlm=vlm())
    kinds = []
    for index, result in enumerate(model.track(clip, stream=True)):
        kinds.append(type(result).__name__)
        if index == 3:
            plugin.close()
    assert kinds == ["FieldResults"] * 4 + ["Results"] * 21


def test_it_can_be_closed_by_the_callable_that_gets_the_records(load: Callable, clip: Path) -> None:
    model, plugins = load(), []
    plugins.append(hazardlens.attach(model, EVERY, vlm=vlm(), on_record=lambda record: plugins[0].close()))
    kinds = [type(result).__name__ for result in model.track(clip, stream=True)]
    assert kinds[0] == "FieldResults"
    assert kinds[-1] == "Results"
    assert plugins[0].counts.failures == 0
    wait_until(lambda: not ours())


def test_attaching_twice_replaces_and_loses_nothing(load: Callable, clip: Path, caplog: Any) -> None:
    model, gate = load(), Gate()
    first = hazardlens.attach(model, PIPELINE, vlm=gate, wait=False)
    taken(model.track(clip, stream=True), 2)
    with hazardlens.attach(model, PIPELINE, vlm=FakeVlm()) as second:
        assert "was attached already" in caplog.text
        results = model.track(clip)
        assert len([one for one in model.callbacks["on_predict_postprocess_end"] if isinstance(one, Hook)]) == 1
        gate._let.release()
    first.close()
    assert [record.frame for record in first.records()] == [0]
    assert (second.counts.frames, first.counts.frames) == (25, 2)
    assert results[0].record.vlm.status == "ok"


def test_two_models_have_their_own_records(load: Callable, clip: Path) -> None:
    one, two, shared = load(), load("pose"), vlm()
    with (
        hazardlens.attach(one, PIPELINE, vlm=shared) as first,
        hazardlens.attach(two, EVERY, vlm=shared) as second,
    ):
        pairs = list(zip(one.track(clip, stream=True), two.track(clip, stream=True), strict=True))
    assert (first.counts.asked, second.counts.asked) == (3, 25)
    assert [(a.record.frame, b.record.frame) for a, b in pairs] == [(k, k) for k in range(25)]


def test_threads_with_their_own_models_do_not_meet(load: Callable, tmp_path: Path) -> None:
    clips = [draw_video(tmp_path / f"{k}.mp4", frames=20, rate=10, size_wh=(96, 64)) for k in range(4)]
    seen: dict[int, list[Any]] = {}

    def work(number: int) -> None:
        model = load()
        with hazardlens.attach(model, EVERY, vlm=FunctionVlm(answer)):
            seen[number] = [result.record for result in model.track(clips[number], stream=True)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(200)
    for number in range(4):
        notes = [record.fields["notes"] for record in seen[number]]
        assert notes == [f"This is frame {k} of {number}.mp4." for k in range(20)]


def test_a_copy_of_a_model_is_not_attached(load: Callable, clip: Path) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()) as plugin:
        twin = copy.deepcopy(model)
        assert type(twin.predict(clip)[0]).__name__ == "Results"
        assert plugin.counts.frames == 0
        assert type(model.predict(clip)[0]).__name__ == "FieldResults"
        (hook,) = [one for one in model.callbacks["on_predict_start"] if isinstance(one, Hook)]
        pickle.loads(pickle.dumps(hook))(None)  # noqa: S301 - our own


def test_a_model_wrapped_again_is_attached_as_well(load: Callable, clip: Path) -> None:
    from ultralytics import YOLO

    model = load()
    plugin = hazardlens.attach(model, PIPELINE, vlm=vlm())
    again = YOLO(model)
    del model
    gc.collect()
    assert again.predict(clip)[0].record.vlm.status == "ok"
    plugin.close()
    assert type(again.predict(clip)[0]).__name__ == "Results"


def test_callbacks_of_the_users_run_as_they_did(load: Callable, clip: Path) -> None:
    heard: list[tuple[str, str, type]] = []

    def hear(name: str) -> Callable[[Any], None]:
        return lambda predictor: heard.append(
            (name, predictor.results[0].path if predictor.results else "", type((predictor.results or [0])[0]))
        )

    model = load()
    events = ("on_predict_postprocess_end", "on_predict_batch_end")
    for event in events:
        model.add_callback(event, hear(f"before {event}"))
    plugin = hazardlens.attach(model, PIPELINE, vlm=vlm())
    for event in events:
        model.add_callback(event, hear(f"after {event}"))
    taken(model.track(clip, stream=True), 1)
    assert [name for name, _, _ in heard] == [f"{when} {event}" for event in events for when in ("before", "after")]
    assert [kind.__name__ for _, _, kind in heard] == ["Results", "Results", "FieldResults", "FieldResults"]
    plugin.close()


def test_a_callback_that_chooses_among_the_results_is_heeded(load: Callable, clip: Path) -> None:
    model = load()

    def first_only(predictor: Any) -> None:
        predictor.results[:] = [result[:1] for result in predictor.results]

    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        model.add_callback("on_predict_postprocess_end", first_only)
        results = model.predict(clip)
    assert {len(result.record.detections) for result in results} <= {0, 1}
    assert any(len(result) for result in results)


def test_an_exception_in_the_users_callback_is_the_users(load: Callable, clip: Path) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        model.add_callback("on_predict_batch_end", fail)
        with pytest.raises(RuntimeError, match="out of order"):
            model.predict(clip)


def test_callbacks_that_are_reset_take_the_plugin_with_them(load: Callable, clip: Path) -> None:
    model = load()
    hazardlens.attach(model, PIPELINE, vlm=vlm())
    model.reset_callbacks()
    assert type(model.predict(clip)[0]).__name__ == "Results"
    gc.collect()
    wait_until(lambda: not ours())


def test_a_run_left_open_and_another_with_other_settings_do_not_meet(load: Callable, clip: Path) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        first = model.predict(clip, stream=True)
        begun = [next(first).record.frame for _ in range(3)]
        second = [result.record.frame for result in model.predict(number_image(3, (96, 64)), device="cpu", nms=True)]
        assert begun + [result.record.frame for result in first] == list(range(25))
        assert second == [0]


def test_training_settings_and_saving_are_not_in_the_way(load: Callable, tmp_path: Path) -> None:
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        model.save(tmp_path / "saved.pt")
    assert (tmp_path / "saved.pt").stat().st_size > 0


def test_the_end_is_logged_with_the_counts(load: Callable, clip: Path, caplog: Any) -> None:
    caplog.set_level(logging.INFO, "hazardlens")
    model = load()
    with hazardlens.attach(model, PIPELINE, vlm=vlm()):
        model.predict(clip)
    assert "detached: 25 frames, 3 questions, 3 ok" in caplog.text
