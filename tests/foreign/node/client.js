// Streams one answer from an Octavo server to stdout:
//   node client.js 127.0.0.1:50051 "The capital of France is" [--max-tokens 32] [--ca tls.crt --token-file token]
// Needs @grpc/grpc-js and @grpc/proto-loader and the schema; nothing is generated. Other flags: --deadline-ms, --cancel-after.
// A refusal's details (a google.rpc.Status, which other libraries of yours can read) follow in hexadecimal.
const fs = require("node:fs");
const path = require("node:path");
const { parseArgs } = require("node:util");
const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const { values: flags, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    "max-tokens": { type: "string", default: "32" },
    "deadline-ms": { type: "string", default: "60000" },
    "cancel-after": { type: "string", default: "0" }, // deltas; 0: never
    protos: { type: "string", default: path.join(__dirname, "../../../protos") },
    ca: { type: "string" },
    "token-file": { type: "string" },
  },
});
const [address, prompt] = positionals;
if (!address || prompt === undefined) {
  console.error("usage: node client.js ADDRESS PROMPT [--max-tokens N] [--ca FILE] [--token-file FILE]");
  process.exit(2);
}

const schema = loader.loadSync("octavo/v1/inference.proto", { includeDirs: [flags.protos], enums: String, longs: Number });
const { InferenceService } = grpc.loadPackageDefinition(schema).octavo.v1;
const credentials = flags.ca ? grpc.credentials.createSsl(fs.readFileSync(flags.ca)) : grpc.credentials.createInsecure();
const metadata = new grpc.Metadata();
if (flags["token-file"]) {
  metadata.set("authorization", `Bearer ${fs.readFileSync(flags["token-file"], "utf8").trim()}`);
}

const client = new InferenceService(address, credentials);
const request = {
  prompt: { text: prompt },
  options: { sampling: { temperature: 0 }, stopping: { maxTokens: Number(flags["max-tokens"]) } },
};
const stream = client.generateStream(request, metadata, { deadline: Date.now() + Number(flags["deadline-ms"]) });
let deltas = 0;
stream.on("data", ({ delta, end }) => {
  if (delta) process.stdout.write(delta.text ?? "");
  if (delta && ++deltas === Number(flags["cancel-after"])) stream.cancel();
  if (end) {
    const reasons = (end.branches ?? []).map((branch) => branch.finish.reason).join(", ");
    console.error(`\n${end.usage.completionTokens} tokens, ended by ${reasons}`);
  }
});
stream.on("error", (error) => {
  console.error(`${grpc.status[error.code]}: ${error.details}`);
  for (const details of error.metadata.get("grpc-status-details-bin")) console.error(`details: ${details.toString("hex")}`);
  process.exitCode = 1;
});
stream.on("close", () => client.close());
