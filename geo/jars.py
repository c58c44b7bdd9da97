"""The jars beside Spark's own: Delta's, and those by which a storage is reached; where they lie, and that they are the ones we tested.

`geo/jars.lock` names each jar with its SHA-256, the schemes that need it, and the Spark it is for. Jars that lie in the folder are used without network; missing ones are
resolved once by the Ivy that Spark itself ships. Nothing about sessions here.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from geo.errors import GeoError, SetupError

LOCK_FILE = files("geo").joinpath("jars.lock")

RESOLVE_TIMEOUT_S = 600  # 10 MB, with Google's 45: ten minutes is a link of 75 kB/s, beyond that something hangs

SPARKS = "4.0", "4.1", "4.2"
"""The versions of Spark that the program runs on, each with a Delta in the lock file (docs/runtimes.md)."""

NEWEST_SPARK = SPARKS[-1]

HOW_TO_INSTALL = "pip install 'delta-geo[spark]'"

_SPARK = "spark-"
"""Beginning of a version of Spark in the lock file."""

_SECTION = re.compile(r"\[([a-z0-9+.-]+(?: [a-z0-9+.-]+)*)\]")


@dataclass(frozen=True)
class Jar:
    """One line of the lock file."""

    group: str
    artifact: str
    version: str
    sha256: str
    schemes: tuple[str, ...] = ()
    """Needed where something lies behind one of these; without any: always."""
    sparks: tuple[str, ...] = ()
    """For these versions of Spark, as `4.2`; without any: for all."""

    @property
    def file_name(self) -> str:
        return f"{self.artifact}-{self.version}.jar"

    @property
    def coordinates(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """The jars of a lock file: `group:artifact:version sha256` a line, `#` comments. Those below a line `[SCHEME ... spark-VERSION ...]`
    are of these schemes, and for these versions of Spark. Raises SetupError."""
    jars: list[Jar] = []
    schemes: tuple[str, ...] = ()
    sparks: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split("#", 1)[0].split()
        if not words:
            continue
        if section := _SECTION.fullmatch(line.strip()):
            named = section[1].split()
            schemes = tuple(name for name in named if not name.startswith(_SPARK))
            sparks = tuple(name.removeprefix(_SPARK) for name in named if name.startswith(_SPARK))
            continue
        coordinates = words[0].split(":")
        if len(words) != 2 or len(coordinates) != 3 or len(words[1]) != 64:
            raise SetupError(f"jars.lock line {number}: expected 'group:artifact:version sha256', found {line!r}.")
        group, artifact, version = coordinates
        jars.append(Jar(group, artifact, version, words[1].lower(), schemes, sparks))
    return tuple(jars)


def locked_jars(schemes: Collection[str] = (), spark: str | None = None) -> tuple[Jar, ...]:
    """The jars this version of the program runs with, where it works with locations behind these schemes. `spark`: its version, as `4.2`, by
    default that of the Spark which would be started. Raises SetupError for a Spark without."""
    jars = parse_lock(LOCK_FILE.read_text(encoding="utf-8"))
    spark = spark_here() if spark is None else spark
    refuse_other_spark(spark)
    fitting = [jar for jar in jars if spark in jar.sparks or not jar.sparks]
    if without := set(schemes) & {scheme for jar in jars for scheme in jar.schemes} - {
        one for jar in fitting for one in jar.schemes
    }:
        raise SetupError(
            f"of {', '.join(sorted(without))} delta-geo has no jars for Spark {spark}, only for Spark {NEWEST_SPARK}: start Spark yourself with those of its "
            "own Hadoop (--packages org.apache.hadoop:hadoop-aws:VERSION of S3), and give that session."
        )
    return tuple(jar for jar in fitting if not jar.schemes or not set(schemes).isdisjoint(jar.schemes))


def refuse_other_spark(version: str) -> None:
    """Raises SetupError for a Spark older than those that the program runs on, or one of which it has no Delta."""
    if version not in SPARKS:
        raise SetupError(
            f"this is Spark {version}: delta-geo runs on Spark {', '.join(SPARKS[:-1])} and {SPARKS[-1]} (docs/runtimes.md). Install one of these, or let "
            "SPARK_HOME name one."
        )


def spark_here() -> str:
    """The version, as `4.2`, of the Spark that would be started. Raises SetupError where there is none."""
    for home in _spark_homes():
        for core in sorted(home.glob("jars/spark-core_*.jar")):
            if found := re.fullmatch(r"spark-core_[\d.]+-(\d+\.\d+)\..*jar", core.name):
                return found[1]
    raise SetupError(f"no Spark: no spark-core_*.jar in {_looked_in()}. Install pyspark ({HOW_TO_INSTALL}) or set SPARK_HOME.")


def known_schemes() -> frozenset[str]:
    """The schemes that some jars are locked for."""
    return frozenset(scheme for jar in parse_lock(LOCK_FILE.read_text(encoding="utf-8")) for scheme in jar.schemes)


def default_folder() -> Path:
    """`$GEO_JARS`, else `delta-geo/jars` in the user's cache folder."""
    if configured := os.environ.get("GEO_JARS"):
        return Path(configured)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "delta-geo" / "jars"


def ensure_jars(folder: Path | None = None, jars: Sequence[Jar] | None = None) -> list[Path]:
    """Absolute paths of `jars`, by default the locked ones, each verified against its SHA-256, in their order.

    Uses no network and no Java when all jars are there. A jar is only ever put into the folder whole and verified (an
    atomic rename), so any number of processes may run this at once. A jar that lies there with another sum is not ours
    to delete: it is refused, never used and left as it is. Raises SetupError.
    """
    folder = (folder or default_folder()).expanduser().absolute()
    jars = locked_jars() if jars is None else jars
    missing = [jar for jar in jars if not (folder / jar.file_name).exists()]
    for jar in jars:
        if jar not in missing:
            _verify(jar, folder / jar.file_name, remedy="Delete the file and run again: it is then downloaded anew.")
    if missing:
        _install(missing, folder)
    return [folder / jar.file_name for jar in jars]


def find_java() -> str:
    """The Java that Spark would start: `$JAVA_HOME/bin/java`, else `java` on the PATH. Raises SetupError."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin")) if home else shutil.which("java")
    if java is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "JAVA_HOME is not set and there is no java on the PATH"
        raise SetupError(f"no Java: {where}. Spark needs Java 17 or newer: install it, or set JAVA_HOME.")
    return java


def _install(missing: Sequence[Jar], folder: Path) -> None:
    """Download, verify, and only then show the jars in the folder, one rename each."""
    java = find_java()
    names = ", ".join(jar.coordinates for jar in missing) if len(missing) < 5 else f"{len(missing)} jars"
    print(f"delta-geo: downloading {names} to {folder} (once)", file=sys.stderr, flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Inside the folder, because a rename is atomic only within one file system.
        with tempfile.TemporaryDirectory(prefix=".resolve-", dir=folder) as scratch:
            _resolve(java, missing, Path(scratch))
            for jar in missing:
                _verify(
                    jar,
                    Path(scratch, jar.file_name),
                    remedy="It was thrown away. Something between here and the repository altered it: do not use it, "
                    f"and put the right jar into {folder} by hand if running again does not help.",
                )
            for jar in missing:
                os.replace(Path(scratch, jar.file_name), folder / jar.file_name)
    except OSError as error:
        raise SetupError(
            f"cannot write the jar folder {folder}: {error}. Set GEO_JARS to a folder that can be written."
        ) from error


def _resolve(java: str, jars: Sequence[Jar], target: Path) -> None:
    """Let Ivy put exactly these jars, without what they depend on, into `target`."""
    ivy_file = target / "ivy.xml"
    ivy_file.write_text(_ivy_module(jars), encoding="utf-8")
    command = [java, "-cp", str(_ivy_jar()), "org.apache.ivy.Main", "-ivy", str(ivy_file), "-types", "jar", "bundle"]
    command += ["-retrieve", f"{target}/[artifact]-[revision].[ext]", "-cache", str(target / "cache")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S)
        output = done.stdout + done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        output = str(error)
    # Ivy's exit code is not enough: it can end well without the file we asked for.
    if absent := [jar.coordinates for jar in jars if not (target / jar.file_name).exists()]:
        raise SetupError(
            f"could not download {', '.join(absent)}. Check the network (a proxy goes into JAVA_TOOL_OPTIONS), or put "
            f"the jars into {target.parent} by hand. Ivy said:\n" + "\n".join(output.strip().splitlines()[-8:])
        )


def _ivy_module(jars: Sequence[Jar]) -> str:
    """An Ivy module that depends on these jars and on nothing they depend on: Spark ships the rest."""
    dependencies = "".join(
        f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" conf="default->master" transitive="false"/>'
        for jar in jars
    )
    return (
        '<ivy-module version="2.0"><info organisation="delta-geo" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    """Ivy out of Spark's own jars: those of `$SPARK_HOME`, else of the installed pyspark."""
    for home in _spark_homes():
        for ivy in sorted(home.glob("jars/ivy-*.jar")):
            return ivy
    raise SetupError(f"no Spark to download the jars with: no ivy-*.jar in {_looked_in()}. Install pyspark or set SPARK_HOME.")


def _spark_homes() -> list[Path]:
    homes = [Path(home) for home in [os.environ.get("SPARK_HOME")] if home]
    if (pyspark := find_spec("pyspark")) is not None and pyspark.origin:
        homes.append(Path(pyspark.origin).parent)
    return homes


def _looked_in() -> str:
    return ", ".join(str(home / "jars") for home in _spark_homes()) or "neither SPARK_HOME nor pyspark was found"


def _verify(jar: Jar, path: Path, *, remedy: str) -> None:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error}. {remedy}") from error
    if found != jar.sha256:
        raise SetupError(f"{path} is not {jar.coordinates}: expected SHA-256 {jar.sha256}, found {found}. {remedy}")


def main(arguments: Sequence[str]) -> int:
    """`python -m geo.jars [--config FILE] [--scheme SCHEME ...]`: print the paths joined by commas, as spark-submit's --jars
    wants them."""
    parser = argparse.ArgumentParser(prog="python -m geo.jars", description=main.__doc__)
    parser.add_argument("--config", metavar="FILE", help="also what the storages of this configuration need")
    parser.add_argument(
        "--scheme", action="append", default=[], choices=sorted(known_schemes()), help="also what this storage needs"
    )
    args = parser.parse_args(arguments)
    try:
        schemes = {*args.scheme}
        if args.config is not None:
            from geo.config import load

            schemes |= load(args.config).schemes
        print(",".join(map(str, ensure_jars(jars=locked_jars(schemes)))))
    except GeoError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
