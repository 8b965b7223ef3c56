"""octavo doctor: what is wrong with a running deployment; or, given a recorded log, which page size suits it."""

import argparse
import json
import time
from dataclasses import asdict

from octavo_client.addresses import is_local
from octavo_client.channel import credentials
from octavo_client.diagnosis import Finding, Seen, findings, open_doors
from octavo_client.errors import ConfigError, RequestError
from octavo_client.health import answers, speaks_plainly
from octavo_client.programs import DOCTOR_OF_LOGS, become
from octavo_client.sync import Client
from octavo_client.verbs import options


def add(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Adds the verb to the command line."""
    parser = verbs.add_parser(
        "doctor",
        help="say what is wrong with a running server, or advise from a recorded log",
        description="Looks at a running server for some seconds and says what is wrong or suspicious; exit code 1 if "
        "anything is. Given a LOG of octavo record, it advises a page size and pool sizes instead.",
    )
    parser.add_argument("log", metavar="LOG", nargs="?", help="advise from this recorded log")
    parser.add_argument("--seconds", type=float, default=3.0, help="between two looks (default: %(default)s)")
    parser.add_argument("--json", action="store_true", help="print all of it as one line of JSON")
    options.add_server(parser)
    parser.set_defaults(run=doctor)


def doctor(args: argparse.Namespace) -> int:
    """Prints the findings; 0 without any, else 1."""
    if args.log is not None:
        become(DOCTOR_OF_LOGS, [args.log, *(["--json"] if args.json else [])])
    if args.seconds <= 0:
        raise ConfigError(f"--seconds is {args.seconds:g}; two looks must be more than 0 seconds apart.")
    found, seen = _doors(args), None
    try:
        seen = _look(args)
        found += findings(seen)
    except RequestError as error:
        found.append(Finding("no_answer", str(error)))
    if args.json:
        print(json.dumps({"healthy": not found, "findings": [asdict(each) for each in found]}))
    else:
        print("\n".join([each.sentence for each in found] or ([summary(seen)] if seen else [])))
    return 1 if found else 0


def summary(seen: Seen) -> str:
    """One sentence about a deployment that is well."""
    last, pages = seen.last, sum(worker.device.total for worker in seen.last.workers)
    held = sum(worker.device.held for worker in last.workers)
    speed = seen.grown(lambda status: status.counters.generated_tokens) / seen.seconds
    return (
        f"{last.model} is well: workers ready {len(seen.ready())}, pages held {held} of {pages}, requests alive "
        f"{last.live_requests}, sequences waiting {last.waiting}, tokens/s {speed:.1f}."
    )


def _look(args: argparse.Namespace) -> Seen:
    keys = credentials(args.address, args.ca_file, args.cert_file, args.key_file)
    with options.open_client(args) as client:
        first = client.status(timeout=args.timeout)
        time.sleep(args.seconds)
        return Seen(
            first=first,
            last=client.status(timeout=args.timeout),
            is_serving=answers(args.address, keys),
            model=client.get_model(timeout=args.timeout),
            page_maps=client.page_maps(timeout=args.timeout),
        )


def _doors(args: argparse.Namespace) -> list[Finding]:
    """A loopback address needs neither TLS nor token."""
    if is_local(args.address):
        return []
    return open_doors(
        address=args.address,
        is_plain=speaks_plainly(args.address),
        is_open=_obeys_anybody(args),
    )


def _obeys_anybody(args: argparse.Namespace) -> bool:
    with Client(args.address, ca_file=args.ca_file, cert_file=args.cert_file, key_file=args.key_file) as client:
        try:
            client.status(timeout=args.timeout)
        except RequestError:
            return False
    return True
