from __future__ import annotations

import os
import re
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest

from castoff.launcher.errors import CastoffError
from castoff.launcher.launchers.local import streams
from castoff.launcher.launchers.local.streams import LINE_LIMIT, RankLines, RankLog, Sink, open_logs
from tests import patience
from tests.clock import Clock


def fed(*pieces: bytes) -> bytes:
    lines = RankLines(b"[3] ")
    return b"".join(lines.feed(piece, 0.0) for piece in pieces) + lines.flush()


class TestLines:
    def test_whole_lines_get_the_prefix(self) -> None:
        assert fed(b"a\n\nb\n") == b"[3] a\n[3] \n[3] b\n"

    @pytest.mark.parametrize("cut", range(1, 21))
    def test_on_a_terminal_colours_pass_and_nothing_else(self, cut: int) -> None:
        """Wherever the output is cut: by two reads, or where a line has stood for too long."""
        written = b"\x1b[2Ja\x1b[31mb\x1b]0;t\x07c"
        lines = RankLines(b"[3] ", terminal=True)
        shown = lines.feed(written[:cut], 0.0) + lines.feed(written[cut:] + b"\n", 0.1)
        assert shown == b"[3] a\x1b[31mbc\x1b[0m\n"
        shown = lines.feed(written[:cut], 0.0) + lines.flush() + lines.feed(written[cut:] + b"\n", 9.0)
        left = shown.replace(b"\x1b[31m", b"").replace(b"\x1b[0m", b"")
        assert not re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", left), shown
        assert fed(written + b"\n") == b"[3] " + written + b"\n"

    def test_a_line_in_pieces_comes_out_whole(self) -> None:
        lines = RankLines(b"[0] ")
        assert lines.feed(b"on", 0.0) == b""
        assert lines.feed(b"e\ntw", 0.1) == b"[0] one\n"
        assert lines.feed(b"o\n", 0.2) == b"[0] two\n"
        assert lines.due() is None

    def test_a_line_without_an_end_gets_one(self) -> None:
        assert fed(b"last words") == b"[3] last words\n"

    def test_an_unfinished_line_is_shown_and_continued_in_a_new_one(self) -> None:
        lines = RankLines(b"[0] ")
        lines.feed(b"loading", 10.0)
        assert lines.due() == 10.0 + streams.LINE_PATIENCE
        lines.feed(b"...", 10.4)
        assert lines.due() == 10.4 + streams.LINE_PATIENCE
        assert lines.flush() == b"[0] loading...\n"
        assert lines.due() is None
        assert lines.feed(b" done\nnext\n", 11.0) == b"[0]  done\n[0] next\n"

    @pytest.mark.parametrize("end", [b"\n", b"\r\n"])
    def test_the_mere_end_of_a_shown_line_is_not_a_line(self, end: bytes) -> None:
        lines = RankLines(b"[0] ")
        lines.feed(b"ready", 0.0)
        lines.flush()
        assert lines.feed(end, 1.0) == b""
        assert lines.feed(b"\n", 1.0) == b"[0] \n"

    def test_an_endless_line_is_cut(self) -> None:
        lines = RankLines(b"[0] ")
        shown = b"".join(lines.feed(b"x" * 10_000, 0.0) for _ in range(20)) + lines.flush()
        assert shown.count(b"x") == 200_000
        assert {*map(len, shown.splitlines()[:-1])} == {LINE_LIMIT + len("[0] ")}

    def test_a_cut_spares_characters(self) -> None:
        shown = fed("é".encode() * LINE_LIMIT, b"", b"x" + "é".encode() * LINE_LIMIT)
        assert shown.decode().count("é") == 2 * LINE_LIMIT

    def test_of_a_progress_bar_only_the_last_state_is_shown(self) -> None:
        bar = [b"\r%d%%" % percent for percent in range(101)]
        assert fed(*bar) == b"[3] 100%\n"
        assert fed(*bar, b"\n", b"done\n") == b"[3] 100%\n[3] done\n"
        assert fed(b"".join(bar) + b"\rover\n") == b"[3] over\n"
        assert fed(b"50%\r", b"60%\r") == b"[3] 60%\n"

    def test_a_bar_that_wipes_itself_leaves_nothing(self) -> None:
        assert fed(b"\r50%", b"\r    \r") == b""
        assert fed(b"\r50%\r   \rdone\n") == b"[3] done\n"

    def test_a_progress_bar_that_never_pauses_is_shown_now_and_then(self) -> None:
        lines = RankLines(b"[0] ")
        for tick in range(100):
            lines.feed(b"\r%d" % tick, tick / 10)
        due = lines.due()
        assert due is not None and due <= 9.9

    def test_bars_take_no_memory(self) -> None:
        lines = RankLines(b"[0] ")
        for _ in range(1000):
            assert lines.feed(b"\r" + b"#" * 1000, 0.0) == b""
        assert len(lines._pending) < 2000

    @pytest.mark.parametrize("cut", range(7))
    def test_windows_line_ends(self, cut: int) -> None:
        text = b"ab\r\ncd\r\n"
        assert fed(text[:cut], text[cut:]) == b"[3] ab\n[3] cd\n"


class TestLogs:
    def test_bytes_stay_as_they_are(self, tmp_path: Path) -> None:
        raw = bytes(range(256)) + b"\r\r\n\0"
        logs = open_logs(tmp_path / "a" / "b", 2, ExitStack())
        assert logs[1].write(raw[:100]) is None and logs[1].write(raw[100:]) is None
        for log in logs:
            assert log.close() is None
        assert (tmp_path / "a" / "b" / "rank-00001.log").read_bytes() == raw
        assert (tmp_path / "a" / "b" / "rank-00000.log").read_bytes() == b""
        assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700

    def test_a_folder_that_cannot_be(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(CastoffError, match="Not a directory; choose another"):
            open_logs(tmp_path / "file" / "logs", 1, ExitStack())
        (tmp_path / "logs" / "rank-00001.log").mkdir(parents=True)
        with pytest.raises(CastoffError, match=r"rank-00001\.log: Is a directory"), ExitStack() as stack:
            open_logs(tmp_path / "logs", 2, stack)

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
    def test_a_full_disk(self, tmp_path: Path) -> None:
        (tmp_path / "rank-00000.log").symlink_to("/dev/full")
        log = RankLog(tmp_path / "rank-00000.log")
        assert "incomplete after 0 bytes: No space left" in (log.write(b"x") or "")
        assert log.write(b"y") is None  # said once


class TestSink:
    def test_a_non_blocking_stream_loses_nothing(self) -> None:
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        with os.fdopen(reading, "rb") as reader:
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                sink = Sink(pipe, lossy=False)
                sink.put(b"x" * 300_000)
                assert not sink.settle(0.05)
                got: list[bytes] = []
                thread = threading.Thread(target=lambda: got.append(reader.read()))
                thread.start()
                assert sink.settle(patience.SECONDS)
                sink.close()
            thread.join()
        assert got == [b"x" * 300_000]

    def test_a_reader_that_left_is_noticed(self) -> None:
        reading, writing = os.pipe()
        os.close(reading)
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            sink = Sink(pipe, lossy=False)
            sink.put(b"x")
            assert sink.settle(patience.SECONDS)
            assert isinstance(sink.error, BrokenPipeError)
            sink.put(b"y" * 2 * streams.BACKLOG_LIMIT)
            assert not sink.full() and sink.settle(0)
            sink.close()

    def test_a_stopped_reader_holds_up_the_ranks(self) -> None:
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as pipe:
            sink = Sink(pipe, lossy=False)
            sink.put(b"x" * 2 * streams.BACKLOG_LIMIT)
            assert sink.full()
            reader.read(2 * streams.BACKLOG_LIMIT)
            assert sink.settle(patience.SECONDS) and not sink.full()
            sink.close()

    def test_with_logs_a_stopped_reader_misses_lines_and_is_reported(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        clock = Clock(monkeypatch)
        line = b"x" * 1023 + b"\n"
        reading, writing = os.pipe()
        with os.fdopen(reading, "rb") as reader, os.fdopen(writing, "wb", buffering=0) as pipe:
            sink = Sink(pipe, lossy=True)

            def waits_no_longer() -> bool:
                clock.sleep(streams.STALL + 1)
                return not sink.full()

            sink.put(line * 2048)
            patience.until(waits_no_longer)
            sink.put(line * 7)
            assert reader.read(2048 * 1024) == line * 2048
            assert sink.settle(patience.SECONDS)
            sink.put(b"back\n")
            assert sink.settle(patience.SECONDS)
            sink.close()
            pipe.close()
            assert reader.read() == (b"castoff: 7 lines are only in the logs: nobody read them here\nback\n")

    def test_closing_never_waits_for_a_stuck_reader(self) -> None:
        reading, writing = os.pipe()
        with os.fdopen(writing, "wb", buffering=0) as pipe:
            with os.fdopen(reading, "rb"):
                sink = Sink(pipe, lossy=True)
                sink.put(b"x\n" * 200_000)
                sink.put(b"y\n" * 5)
                assert not sink.settle(0.05)
                sink.close()
                assert sink.skipped == 5
            assert sink._thread is not None
            sink._thread.join(patience.SECONDS)
