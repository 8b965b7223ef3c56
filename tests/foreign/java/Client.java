// Streams one answer from an Octavo server to stdout:
//   java Client 127.0.0.1:50051 "The capital of France is" [--max-tokens 32] [--ca tls.crt --token-file token]
// Other flags: --deadline-ms, --cancel-after (deltas). io.octavo.v1 is what protoc makes of octavo/v1/inference.proto.
// A refusal's details (a google.rpc.Status, which other libraries of yours can read) follow in hexadecimal.
import io.grpc.Context;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.MetadataUtils;
import io.octavo.v1.*;
import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;

public class Client {
  static final Metadata.Key<byte[]> DETAILS = Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  public static void main(String[] words) throws Exception {
    Map<String, String> flags = new HashMap<>(Map.of("--max-tokens", "32", "--deadline-ms", "60000", "--cancel-after", "0"));
    for (int i = 2; i + 1 < words.length; i += 2) flags.put(words[i], words[i + 1]);

    NettyChannelBuilder builder = NettyChannelBuilder.forTarget(words[0]).usePlaintext();
    if (flags.containsKey("--ca")) {
      builder.useTransportSecurity().sslContext(GrpcSslContexts.forClient().trustManager(new File(flags.get("--ca"))).build());
    }
    Metadata headers = new Metadata();
    if (flags.containsKey("--token-file")) {
      String token = Files.readString(Path.of(flags.get("--token-file"))).strip();
      headers.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
    }
    GenerateStreamRequest.Builder request = GenerateStreamRequest.newBuilder();
    request.getPromptBuilder().setText(words[1]);
    request.getOptionsBuilder().getSamplingBuilder().setTemperature(0);
    request.getOptionsBuilder().getStoppingBuilder().setMaxTokens(Integer.parseInt(flags.get("--max-tokens")));

    ManagedChannel channel = builder.build();
    Context.CancellableContext call = Context.current().withCancellation();
    int[] deltas = {0};
    try {
      call.run(() -> MetadataUtils.attachHeaders(InferenceServiceGrpc.newBlockingStub(channel), headers)
          .withDeadlineAfter(Long.parseLong(flags.get("--deadline-ms")), TimeUnit.MILLISECONDS)
          .generateStream(request.build())
          .forEachRemaining(response -> {
            System.out.print(response.getDelta().getText());
            if (response.hasDelta() && ++deltas[0] == Integer.parseInt(flags.get("--cancel-after"))) call.cancel(null);
            if (!response.hasEnd()) return;
            FinishReason reason = response.getEnd().getBranches(0).getFinish().getReason();
            System.err.printf("%n%d tokens, ended by %s%n", response.getEnd().getUsage().getCompletionTokens(), reason);
          }));
    } catch (StatusRuntimeException error) {
      System.err.println(error.getStatus().getCode() + ": " + error.getStatus().getDescription());
      byte[] details = error.getTrailers() == null ? null : error.getTrailers().get(DETAILS);
      if (details != null) System.err.println("details: " + HexFormat.of().formatHex(details));
      System.exit(1);
    } finally {
      System.out.flush();
      channel.shutdownNow().awaitTermination(5, TimeUnit.SECONDS);
    }
  }
}
