"""Lists the programs of this folder. `--help` of each explains it and its defaults."""

import ast
import pathlib

for path in sorted(pathlib.Path(__file__).parent.glob("*/*.py")):
    text = path.read_text()
    if 'if __name__ == "__main__":' in text:
        title = (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
        print(f"python -m scripts.{path.parent.name}.{path.stem}\n    {title}")
