from pathlib import Path

from dw_platform.log import Log, Records


def test_a_reader_that_was_there_before_the_first_writer_sees_acknowledged_records_only(tmp_path: Path) -> None:
    """The mark appears between the reader's look for it and its look at the files."""
    log = Log(tmp_path / "log")
    log.create_topic("orders")
    with log.reader("orders", 0) as reader, log.writer("orders", 0) as writer:
        writer.append(Records([b"written", b"not acknowledged yet"]))
        looks = iter([None, (0, 0)])
        reader._mark.read = lambda: next(looks)  # type: ignore[method-assign]
        batch = reader.read(0)
        assert (len(batch), batch.next_offset) == (0, 0)
