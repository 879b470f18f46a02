import sys

from benchmarks.extract_memory import peak_mb


def test_memory_is_that_of_all_python_processes_together() -> None:
    hold = "import time; held = b'x' * 50_000_000; time.sleep(1)"
    alone = peak_mb([sys.executable, "-c", hold])
    also = f"import subprocess, sys; held = b'x' * 50_000_000; subprocess.run([sys.executable, '-c', {hold!r}])"
    assert alone > 50
    assert peak_mb([sys.executable, "-c", also]) > alone + 45
