"""Compiles LaTeX where there is a TeX with booktabs."""

import shutil
import subprocess
from pathlib import Path

BOOKTABS = shutil.which("kpsewhich") and not subprocess.call(["kpsewhich", "booktabs.sty"], stdout=subprocess.DEVNULL)


def compile_latex(body: str, folder: Path) -> None:
    """Check that a document with ``body`` compiles in ``folder``."""
    if shutil.which("pdflatex") and BOOKTABS:
        source = "\\documentclass{article}\\usepackage{booktabs,longtable}\\begin{document}\n%s\\end{document}\n"
        (folder / "t.tex").write_text(source % body)
        command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "t.tex"]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:]
