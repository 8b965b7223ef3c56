# Streams one answer from an Octavo server to stdout:
#   ruby client.rb 127.0.0.1:50051 "The capital of France is" [--max-tokens 32] [--ca tls.crt --token-file token]
# Other flags: --deadline-ms, --cancel-after (deltas). octavo/v1 is what protoc makes of octavo/v1/inference.proto.
# A refusal's details (a google.rpc.Status, which other libraries of yours can read) follow in hexadecimal.
require "optparse"
require "octavo/v1/inference_services_pb"

flags = {"max-tokens": 32, "deadline-ms": 60_000, "cancel-after": 0}
OptionParser.new do |parser|
  parser.on("--max-tokens N", Integer)
  parser.on("--deadline-ms N", Integer)
  parser.on("--cancel-after N", Integer)
  parser.on("--ca FILE")
  parser.on("--token-file FILE")
end.parse!(into: flags)
address, prompt = ARGV

credentials = flags[:ca] ? GRPC::Core::ChannelCredentials.new(File.read(flags[:ca])) : :this_channel_is_insecure
metadata = {}
metadata["authorization"] = "Bearer #{File.read(flags[:"token-file"]).strip}" if flags[:"token-file"]

request = Octavo::V1::GenerateStreamRequest.new(
  prompt: Octavo::V1::Prompt.new(text: prompt),
  options: Octavo::V1::GenerationOptions.new(
    sampling: Octavo::V1::SamplingOptions.new(temperature: 0),
    stopping: Octavo::V1::StoppingOptions.new(max_tokens: flags[:"max-tokens"])
  )
)
stub = Octavo::V1::InferenceService::Stub.new(address, credentials)
deadline = Time.now + flags[:"deadline-ms"] / 1000.0
begin
  call = stub.generate_stream(request, metadata: metadata, deadline: deadline, return_op: true)
  responses, deltas = call.execute, 0
  responses.each do |response|
    print response.delta.text if response.delta
    call.cancel if response.delta && (deltas += 1) == flags[:"cancel-after"]
    next unless response.end
    reason = response.end.branches.first.finish.reason
    warn "\n#{response.end.usage.completion_tokens} tokens, ended by #{reason}"
  end
rescue GRPC::BadStatus => error
  warn "#{error.class.name.split("::").last}: #{error.details}"
  details = error.metadata["grpc-status-details-bin"]
  warn "details: #{details.unpack1("H*")}" if details
  exit 1
end
