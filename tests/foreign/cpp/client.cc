// Streams one answer from an Octavo server to stdout:
//   client 127.0.0.1:50051 "The capital of France is" [--max-tokens 32] [--ca tls.crt --token-file token]
// Other flags: --deadline-ms, --cancel-after (deltas). octavo/v1 is what protoc makes of octavo/v1/inference.proto.
// A refusal's details (a google.rpc.Status, which other libraries of yours can read) follow in hexadecimal.
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>

#include "octavo/v1/inference.grpc.pb.h"

static std::string content(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int main(int count, char** words) {
  std::map<std::string, std::string> flags{{"--max-tokens", "32"}, {"--deadline-ms", "60000"}, {"--cancel-after", "0"}};
  for (int i = 3; i + 1 < count; i += 2) flags[words[i]] = words[i + 1];

  auto credentials = grpc::InsecureChannelCredentials();
  if (flags.count("--ca")) {
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = content(flags["--ca"]);
    credentials = grpc::SslCredentials(options);
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(std::stoi(flags["--deadline-ms"])));
  if (flags.count("--token-file")) {
    std::string token = content(flags["--token-file"]);
    context.AddMetadata("authorization", "Bearer " + token.substr(0, token.find_last_not_of(" \n") + 1));
  }

  octavo::v1::GenerateStreamRequest request;
  request.mutable_prompt()->set_text(words[2]);
  request.mutable_options()->mutable_sampling()->set_temperature(0);
  request.mutable_options()->mutable_stopping()->set_max_tokens(std::stoi(flags["--max-tokens"]));
  auto stub = octavo::v1::InferenceService::NewStub(grpc::CreateChannel(words[1], credentials));
  auto stream = stub->GenerateStream(&context, request);
  octavo::v1::GenerateStreamResponse response;
  for (int deltas = 0; stream->Read(&response);) {
    if (response.has_delta()) std::cout << response.delta().text();
    if (response.has_delta() && ++deltas == std::stoi(flags["--cancel-after"])) context.TryCancel();
    if (response.has_end()) {
      auto reason = octavo::v1::FinishReason_Name(response.end().branches(0).finish().reason());
      std::cerr << "\n" << response.end().usage().completion_tokens() << " tokens, ended by " << reason << "\n";
    }
  }
  grpc::Status status = stream->Finish();
  if (status.ok()) return 0;
  std::cerr << status.error_code() << ": " << status.error_message() << "\n";
  if (!status.error_details().empty()) std::cerr << "details: " << std::hex << std::setfill('0');
  for (unsigned char byte : status.error_details()) std::cerr << std::setw(2) << int(byte);
  return 1;
}
