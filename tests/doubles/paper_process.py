"""A paper worker behind a real DEALER socket, in a thread: the step protocol over ZeroMQ without tensors."""

import threading
from collections.abc import Callable

import zmq
from octavo.v1 import step_pb2

from tests.doubles.paper_worker import PaperWorker


class PaperProcess:
    """Dials `address`, greets, executes plans until `stop` or a Goodbye.

    `before_result` may look at or delay each step, `prepare` gives the socket its keys.
    """

    def __init__(
        self,
        address: str,
        worker: PaperWorker,
        *,
        name: str = "paper",
        digest: bytes = b"paper",
        before_result: Callable[[step_pb2.StepPlan], None] = lambda plan: None,
        prepare: Callable[["zmq.Socket[bytes]"], None] = lambda socket: None,
    ) -> None:
        self.worker = worker
        self.name = name
        self.digest = digest
        self.plans: list[step_pb2.StepPlan] = []
        self.refusal: step_pb2.Refusal | None = None
        self.fault: BaseException | None = None
        self._address = address
        self._before_result = before_result
        self._prepare = prepare
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self.fault is not None:
            raise self.fault

    def _run(self) -> None:
        context = zmq.Context()
        socket = context.socket(zmq.DEALER)
        socket.setsockopt(zmq.LINGER, 0)
        try:
            self._prepare(socket)
            socket.connect(self._address)
            hello = self.worker.hello(self.name, self.digest)
            socket.send(step_pb2.WorkerMessage(hello=hello).SerializeToString())
            while not self._stop.is_set():
                if socket.poll(20) and not self._answer(socket, socket.recv()):
                    return
        except BaseException as error:
            self.fault = error
        finally:
            socket.close()
            context.term()

    def _answer(self, socket: "zmq.Socket[bytes]", frame: bytes) -> bool:
        message = step_pb2.SchedulerMessage()
        message.ParseFromString(frame)
        match message.WhichOneof("body"):
            case "refusal":
                self.refusal = message.refusal
                return False
            case "goodbye":
                return False
            case "heartbeat":  # else it would be lost after some idle seconds, which a slow browser takes
                beat = step_pb2.Heartbeat(phase=step_pb2.Heartbeat.PHASE_IDLE, last_step=self.worker.step)
                socket.send(step_pb2.WorkerMessage(epoch=message.epoch, heartbeat=beat).SerializeToString())
            case "plan":
                self.plans.append(message.plan)
                result = self.worker.execute(message.plan)
                self._before_result(message.plan)
                socket.send(step_pb2.WorkerMessage(epoch=message.epoch, result=result).SerializeToString())
        return True
