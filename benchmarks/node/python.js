// CPython on WebAssembly as a second Python: node python.js FOLDER... -- MODULE ARGUMENT...
// The folders are seen at their own paths and searched for modules; PYTHONHASHSEED counts as it does elsewhere.
import { loadPyodide } from "pyodide";

const words = process.argv.slice(2);
const cut = words.indexOf("--");
const folders = words.slice(0, cut);
const python = await loadPyodide({ env: { PYTHONHASHSEED: process.env.PYTHONHASHSEED ?? "random" } });
for (const folder of folders) {
  python.FS.mkdirTree(folder);
  python.FS.mount(python.FS.filesystems.NODEFS, { root: folder }, folder);
}
python.globals.set("folders", python.toPy(folders));
python.globals.set("words", python.toPy(words.slice(cut + 1)));
process.exitCode = python.runPython(`
import runpy, sys

sys.path[:0] = folders
sys.argv = words
try:
    runpy.run_module(words[0], run_name="__main__")
    code = 0
except SystemExit as end:
    code = end.code or 0
code
`);
