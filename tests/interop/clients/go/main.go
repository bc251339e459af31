// Command search calls examples/search with grpc-go: all four patterns, metadata, deadline, cancellation, compression
// and errors. Messages are built from search.proto when it runs, so that nothing has to be generated.
//
//	search TARGET FOLDER_OF_PROTOS [CA.pem]
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/bufbuild/protocompile"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

const timeout = 20 * time.Second

type caller struct {
	conn    *grpc.ClientConn
	service protoreflect.ServiceDescriptor
}

func (c caller) method(name string) protoreflect.MethodDescriptor {
	return c.service.Methods().ByName(protoreflect.Name(name))
}

func path(method protoreflect.MethodDescriptor) string {
	return fmt.Sprintf("/%s/%s", method.Parent().FullName(), method.Name())
}

func message(of protoreflect.MessageDescriptor, json string) *dynamicpb.Message {
	m := dynamicpb.NewMessage(of)
	if err := protojson.Unmarshal([]byte(json), m); err != nil {
		panic(err)
	}
	return m
}

func (c caller) unary(ctx context.Context, json string, options ...grpc.CallOption) (*dynamicpb.Message, error) {
	method := c.method("Query")
	reply := dynamicpb.NewMessage(method.Output())
	return reply, c.conn.Invoke(ctx, path(method), message(method.Input(), json), reply, options...)
}

func (c caller) stream(ctx context.Context, name string) (grpc.ClientStream, protoreflect.MethodDescriptor, error) {
	method := c.method(name)
	desc := &grpc.StreamDesc{ClientStreams: method.IsStreamingClient(), ServerStreams: method.IsStreamingServer()}
	stream, err := c.conn.NewStream(ctx, desc, path(method))
	return stream, method, err
}

func hits(of *dynamicpb.Message) int {
	return of.Get(of.Descriptor().Fields().ByName("hits")).List().Len()
}

func query(ctx context.Context, c caller) error {
	reply, err := c.unary(ctx, `{"query": "daemon", "limit": 3}`)
	if err == nil && (hits(reply) == 0 || hits(reply) > 3) {
		err = fmt.Errorf("%d hits", hits(reply))
	}
	return err
}

func results(ctx context.Context, c caller) error {
	stream, method, err := c.stream(ctx, "Results")
	if err != nil {
		return err
	}
	if err := stream.SendMsg(message(method.Input(), `{"query": "the"}`)); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for rank := uint64(1); ; rank++ {
		hit := dynamicpb.NewMessage(method.Output())
		if err := stream.RecvMsg(hit); errors.Is(err, io.EOF) && rank > 10 {
			return nil
		} else if err != nil {
			return err
		}
		if got := hit.Get(method.Output().Fields().ByName("rank")).Uint(); got != rank {
			return fmt.Errorf("rank %d instead of %d", got, rank)
		}
	}
}

func index(ctx context.Context, c caller) error {
	stream, method, err := c.stream(ctx, "Index")
	if err != nil {
		return err
	}
	for i := range 200 {
		document := fmt.Sprintf(`{"name": "go%d", "text": "gopher words number%d"}`, i, i)
		if err := stream.SendMsg(message(method.Input(), document)); err != nil {
			return err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	summary := dynamicpb.NewMessage(method.Output())
	if err := stream.RecvMsg(summary); err != nil {
		return err
	}
	if got := summary.Get(method.Output().Fields().ByName("documents")).Uint(); got != 200 {
		return fmt.Errorf("%d documents", got)
	}
	return nil
}

func session(ctx context.Context, c caller) error {
	stream, method, err := c.stream(ctx, "Session")
	if err != nil {
		return err
	}
	for _, ask := range []string{`{"query": "daemon"}`, `{"refine": "call"}`, `{"undo": {}}`} {
		if err := stream.SendMsg(message(method.Input(), ask)); err != nil {
			return err
		}
		answer := dynamicpb.NewMessage(method.Output())
		if err := stream.RecvMsg(answer); err != nil {
			return err
		}
		if !answer.Has(method.Output().Fields().ByName("page")) {
			return fmt.Errorf("no page: %v", answer)
		}
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(dynamicpb.NewMessage(method.Output())); !errors.Is(err, io.EOF) {
		return fmt.Errorf("no end: %w", err)
	}
	return nil
}

func failure(ctx context.Context, c caller) error {
	_, err := c.unary(ctx, `{}`)
	return wanted(err, codes.InvalidArgument)
}

func custom(ctx context.Context, c caller) error {
	ctx = metadata.AppendToOutgoingContext(ctx, "tenant", "blue", "raw-bin", string([]byte{0, 255}))
	_, err := c.unary(ctx, `{"query": "daemon"}`)
	return err
}

func compressed(ctx context.Context, c caller) error {
	_, err := c.unary(ctx, `{"query": "daemon"}`, grpc.UseCompressor(gzip.Name))
	return err
}

func cancelled(ctx context.Context, c caller) error {
	ctx, cancel := context.WithCancel(ctx)
	stream, method, err := c.stream(ctx, "Session")
	if err != nil {
		return err
	}
	cancel()
	return wanted(stream.RecvMsg(dynamicpb.NewMessage(method.Output())), codes.Canceled)
}

func deadline(ctx context.Context, c caller) error {
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	stream, method, err := c.stream(ctx, "Session")
	if err != nil {
		return err
	}
	return wanted(stream.RecvMsg(dynamicpb.NewMessage(method.Output())), codes.DeadlineExceeded)
}

func unimplemented(ctx context.Context, c caller) error {
	method := c.method("Query")
	reply := dynamicpb.NewMessage(method.Output())
	err := c.conn.Invoke(ctx, "/search.v1.Search/NoSuchMethod", dynamicpb.NewMessage(method.Input()), reply)
	return wanted(err, codes.Unimplemented)
}

func wanted(err error, code codes.Code) error {
	if got := status.Code(err); got != code {
		return fmt.Errorf("%v instead of %v: %w", got, code, err)
	}
	return nil
}

func main() {
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{ImportPaths: []string{os.Args[2]}}}
	files, err := compiler.Compile(context.Background(), "search/v1/search.proto")
	if err != nil {
		panic(err)
	}
	transport := insecure.NewCredentials()
	if len(os.Args) > 3 {
		if transport, err = credentials.NewClientTLSFromFile(os.Args[3], ""); err != nil {
			panic(err)
		}
	}
	conn, err := grpc.NewClient(os.Args[1], grpc.WithTransportCredentials(transport))
	if err != nil {
		panic(err)
	}
	defer conn.Close()
	c := caller{conn: conn, service: files[0].Services().ByName("Search")}
	cases := []struct {
		name string
		play func(context.Context, caller) error
	}{
		{"query", query}, {"results", results}, {"index", index}, {"session", session}, {"status", failure},
		{"metadata", custom}, {"compressed", compressed}, {"cancelled", cancelled}, {"deadline", deadline},
		{"unimplemented", unimplemented},
	}
	failed := 0
	for _, each := range cases {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		if err := each.play(ctx, c); err != nil {
			failed++
			fmt.Printf("FAILED %s: %s\n", each.name, strings.ReplaceAll(err.Error(), "\n", " "))
		} else {
			fmt.Printf("passed %s\n", each.name)
		}
		cancel()
	}
	if failed > 0 {
		os.Exit(1)
	}
}
