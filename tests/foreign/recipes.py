"""The recipes of this folder, one a language: how each is built and run, with packages of Debian or of npm."""

import inspect
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.foreign.environments import (
    CACHE,
    HERE,
    INFERENCE,
    PROTOS,
    made,
    need_programs,
    node_environment,
    run,
)

JNI = Path("/usr/lib/x86_64-linux-gnu/jni/libnetty-tcnative.so")
"""Netty's way to TLS with ALPN. It looks for the file under another name than Debian gives it."""
JARS = ":".join(
    f"/usr/share/java/{name}.jar"
    for name in (
        *("grpc-api", "grpc-context", "grpc-core", "grpc-netty", "grpc-protobuf", "grpc-protobuf-lite", "grpc-stub"),
        *("protobuf", "guava", "failureaccess", "perfmark-api", "netty-buffer", "netty-codec", "netty-codec-http"),
        *("netty-codec-http2", "netty-codec-socks", "netty-common", "netty-handler", "netty-handler-proxy"),
        *("netty-resolver", "netty-transport", "netty-transport-native-unix-common", "netty-tcnative"),
        "geronimo-annotation-1.3-spec",
    )
)


@dataclass(frozen=True)
class Recipe:
    """A client in one file. `title` is the language's own name.

    `build` gives the words that run it and the environment to run it in.
    """

    title: str
    source: str
    build: Callable[[], tuple[list[str], dict[str, str]]]
    version: Callable[[], str]
    """Of the language's gRPC."""
    statuses: Callable[[str], str] = str
    """How the language spells the name of a status."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        words, environment = self.build()
        return subprocess.run(
            [*words, *arguments], env={**os.environ, **environment}, capture_output=True, text=True, timeout=90
        )


def built_of(name: str, build: Callable[[], object]) -> list[bytes]:
    """The client's source, the schema, and how it is built."""
    source = (HERE / RECIPES[name].source).read_bytes()
    return [source, (PROTOS / INFERENCE).read_bytes(), inspect.getsource(build).encode()]


def _node() -> tuple[list[str], dict[str, str]]:
    return ["node", str(HERE / "node" / "client.js")], {"NODE_PATH": str(node_environment())}


def _go() -> tuple[list[str], dict[str, str]]:
    need_programs("go", "go", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
    source = HERE / "go" / "main.go"

    def make(folder: Path) -> None:
        package = folder / "src" / "octavo" / "v1"
        package.mkdir(parents=True)
        options = f"--go_out={folder}/src", f"--go-grpc_out={folder}/src"
        run(["protoc", f"-I{PROTOS}", *options, INFERENCE])
        environment = {**os.environ, "GO111MODULE": "off", "GOPATH": f"{folder}:/usr/share/gocode"}
        run(["go", "build", "-o", folder / "client", source], env={**environment, "GOCACHE": f"{CACHE}/go-build"})

    return [str(made("go", built_of("go", _go), make) / "client")], {}


def _cpp() -> tuple[list[str], dict[str, str]]:
    need_programs("cpp", "g++", "protoc", "grpc_cpp_plugin", "pkg-config")
    source = HERE / "cpp" / "client.cc"

    def make(folder: Path) -> None:
        plugin = shutil.which("grpc_cpp_plugin")
        outputs = f"--cpp_out={folder}", f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"
        run(["protoc", f"-I{PROTOS}", *outputs, INFERENCE])
        generated = [folder / "octavo" / "v1" / f"inference{end}.cc" for end in (".pb", ".grpc.pb")]
        libraries = run(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"]).split()
        run(["g++", "-std=c++17", f"-I{folder}", source, *generated, *libraries, "-o", folder / "client"])

    return [str(made("cpp", built_of("cpp", _cpp), make) / "client")], {}


def _java() -> tuple[list[str], dict[str, str]]:
    need_programs("java", "java", "javac", "protoc", "grpc_java_plugin")
    source = HERE / "java" / "Client.java"

    def make(folder: Path) -> None:
        plugin = shutil.which("grpc_java_plugin")
        generated = folder / "generated"
        generated.mkdir()
        outputs = f"--java_out={generated}", f"--grpc-java_out={generated}", f"--plugin=protoc-gen-grpc-java={plugin}"
        run(["protoc", f"-I{PROTOS}", *outputs, INFERENCE])
        sources = [source, *sorted(generated.rglob("*.java"))]
        shutil.copy(JNI, folder / "libnetty_tcnative.so")
        run(["javac", "-nowarn", "-encoding", "UTF-8", "-cp", JARS, "-d", folder, *sources])

    folder = made("java", built_of("java", _java), make)
    options = "-Dfile.encoding=UTF-8", f"-Djava.library.path={folder}", "-XX:TieredStopAtLevel=1"
    return ["java", *options, "-cp", f"{folder}:{JARS}", "Client"], {}


def _ruby() -> tuple[list[str], dict[str, str]]:
    need_programs("ruby", "ruby", "protoc", "grpc_ruby_plugin")

    def make(folder: Path) -> None:
        plugin = shutil.which("grpc_ruby_plugin")
        outputs = f"--ruby_out={folder}", f"--grpc_out={folder}", f"--plugin=protoc-gen-grpc={plugin}"
        run(["protoc", f"-I{PROTOS}", *outputs, INFERENCE])

    return ["ruby", "-I", str(made("ruby", built_of("ruby", _ruby), make)), str(HERE / "ruby" / "client.rb")], {}


def _debian(package: str) -> Callable[[], str]:
    return lambda: run(["dpkg-query", "--show", "--showformat=${Version}", package]).partition("-")[0]


def _npm(package: str) -> Callable[[], str]:
    read = "console.log(require(process.argv[1]).version)"
    return lambda: run(["node", "-e", read, str(node_environment() / package / "package.json")]).strip()


def _camel(status: str) -> str:
    return "".join(word.capitalize() for word in status.split("_"))


def _number(status: str) -> str:
    import grpc

    return str(grpc.StatusCode[status].value[0])


RECIPES = {
    "node": Recipe("Node", "node/client.js", _node, _npm("@grpc/grpc-js")),
    "go": Recipe("Go", "go/main.go", _go, _debian("golang-google-grpc-dev"), _camel),
    "cpp": Recipe("C++", "cpp/client.cc", _cpp, _debian("libgrpc++-dev"), _number),
    "java": Recipe("Java", "java/Client.java", _java, _debian("libgrpc-java")),
    "ruby": Recipe("Ruby", "ruby/client.rb", _ruby, _debian("ruby-grpc"), _camel),
}
QUICK = ("node",)
"""Those that every run of the tests includes."""


def code_lines(source: Path) -> list[str]:
    """Without blank lines, comments and imports, which say nothing of how much there is to learn."""
    marks = ("//", "#", "import ", "#include", "require ", "package ", "const fs", "const path", '"', 'pb "')
    lines = [line.strip() for line in source.read_text().splitlines()]
    return [line for line in lines if line and not line.startswith(marks)]
