// Streams one answer from an Octavo server to stdout:
//
//	client 127.0.0.1:50051 "The capital of France is" [-max-tokens 32] [-ca tls.crt -token-file token]
//
// Other flags: -deadline-ms, -cancel-after (deltas). octavo/v1 is what protoc makes of octavo/v1/inference.proto.
// A refusal's details (a google.rpc.Status, which other libraries of yours can read) follow in hexadecimal.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	pb "octavo/v1"

	"github.com/golang/protobuf/proto"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %s\n", status.Code(err), status.Convert(err).Message())
		if details, _ := proto.Marshal(status.Convert(err).Proto()); status.Convert(err).Proto().GetDetails() != nil {
			fmt.Fprintf(os.Stderr, "details: %x\n", details)
		}
		os.Exit(1)
	}
}

func main() {
	maxTokens := flag.Uint("max-tokens", 32, "")
	deadline := flag.Uint("deadline-ms", 60000, "")
	cancelAfter := flag.Int("cancel-after", 0, "deltas; 0: never")
	ca := flag.String("ca", "", "")
	tokenFile := flag.String("token-file", "", "")
	check(flag.CommandLine.Parse(os.Args[3:]))

	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(*deadline)*time.Millisecond)
	defer cancel()
	security := grpc.WithInsecure()
	if *ca != "" {
		tls, err := credentials.NewClientTLSFromFile(*ca, "")
		check(err)
		security = grpc.WithTransportCredentials(tls)
	}
	if *tokenFile != "" {
		token, err := os.ReadFile(*tokenFile)
		check(err)
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	connection, err := grpc.Dial(os.Args[1], security)
	check(err)
	temperature, most := float32(0), uint32(*maxTokens)
	stream, err := pb.NewInferenceServiceClient(connection).GenerateStream(ctx, &pb.GenerateStreamRequest{
		Prompt: &pb.Prompt{Content: &pb.Prompt_Text{Text: os.Args[2]}},
		Options: &pb.GenerationOptions{
			Sampling: &pb.SamplingOptions{Temperature: &temperature},
			Stopping: &pb.StoppingOptions{MaxTokens: &most},
		},
	})
	check(err)
	for deltas := 0; ; {
		response, err := stream.Recv()
		if err == io.EOF {
			return
		}
		check(err)
		if delta := response.GetDelta(); delta != nil {
			fmt.Print(delta.Text)
			if deltas++; deltas == *cancelAfter {
				cancel()
			}
		}
		if end := response.GetEnd(); end != nil {
			reason := end.Branches[0].Finish.Reason
			fmt.Fprintf(os.Stderr, "\n%d tokens, ended by %s\n", end.Usage.CompletionTokens, reason)
		}
	}
}
