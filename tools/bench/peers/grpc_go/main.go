// The grpc-go peer of trunkline-bench: a server, and a driver that takes orders on standard input.
//
//	grpc-go-peer serve PORT_FILE
//	grpc-go-peer drive ADDRESS
//	grpc-go-peer drive-large ADDRESS
//
// An order is `MILLIS REQUEST_BYTES OUTSTANDING`, an answer `CALLS ELAPSED_NS P50_NS P99_NS`. A goroutine for each call
// outstanding, as a Go program would do it.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"math"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"grpcgopeer/benchpb"
	"grpcgopeer/largepb"
)

// Requests up to this size are the small call; its data is shorter by tag and length.
const (
	smallBytesMax = 64
	smallOverhead = 2
)

func main() {
	words := os.Args[1:]
	switch {
	case len(words) == 2 && words[0] == "serve":
		log.Fatal(serve(words[1]))
	case len(words) == 2 && words[0] == "drive":
		if err := drive(words[1], small); err != nil {
			log.Fatal(err)
		}
	case len(words) == 2 && words[0] == "drive-large":
		if err := drive(words[1], large); err != nil {
			log.Fatal(err)
		}
	case len(words) == 1 && words[0] == "version":
		fmt.Printf("grpc-go %s (%s)\n", grpc.Version, runtime.Version())
	default:
		log.Fatal("usage: grpc-go-peer serve PORT_FILE | drive ADDRESS | drive-large ADDRESS | version")
	}
}

type counter struct {
	benchpb.UnimplementedBenchServer
}

func (counter) Small(_ context.Context, request *benchpb.Bytes) (*benchpb.Number, error) {
	return &benchpb.Number{Value: int64(len(request.Data))}, nil
}

func (counter) Sink(_ context.Context, request *benchpb.Bytes) (*benchpb.Number, error) {
	return &benchpb.Number{Value: int64(len(request.Data))}, nil
}

func serve(portFile string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(math.MaxInt32))
	benchpb.RegisterBenchServer(server, counter{})
	largepb.RegisterLargeServer(server, mirror{})
	// Written aside and renamed, so that a reader sees all of it or nothing.
	aside := portFile + ".new"
	if err := os.WriteFile(aside, []byte(listener.Addr().String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(aside, portFile); err != nil {
		return err
	}
	return server.Serve(listener)
}

// A call, made again and again.
type call func() error

// What is called: the size of an order says how large it is.
type work func(connection *grpc.ClientConn, size int) (call, error)

func small(connection *grpc.ClientConn, bytes int) (call, error) {
	client := benchpb.NewBenchClient(connection)
	method, length := client.Sink, bytes
	if bytes <= smallBytesMax {
		method, length = client.Small, bytes-smallOverhead
	}
	data := make([]byte, length)
	for index := range data {
		data[index] = 7
	}
	return func() error {
		_, err := method(context.Background(), &benchpb.Bytes{Data: data})
		return err
	}, nil
}

func drive(address string, work work) error {
	connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var millis, size, outstanding int
		if _, err := fmt.Sscan(lines.Text(), &millis, &size, &outstanding); err != nil {
			return err
		}
		call, err := work(connection, size)
		if err != nil {
			return err
		}
		began := time.Now()
		took, err := carryOut(call, time.Duration(millis)*time.Millisecond, outstanding)
		if err != nil {
			return err
		}
		elapsed := time.Since(began)
		slices.Sort(took)
		fmt.Println(len(took), elapsed.Nanoseconds(), quantile(took, 50), quantile(took, 99))
	}
	return lines.Err()
}

func carryOut(call call, last time.Duration, outstanding int) ([]time.Duration, error) {
	end := time.Now().Add(last)
	took := make([][]time.Duration, outstanding)
	failed := make([]error, outstanding)
	var callers sync.WaitGroup
	for caller := range outstanding {
		callers.Go(func() {
			for began := time.Now(); began.Before(end); {
				if failed[caller] = call(); failed[caller] != nil {
					return
				}
				now := time.Now()
				took[caller] = append(took[caller], now.Sub(began))
				began = now
			}
		})
	}
	callers.Wait()
	for _, err := range failed {
		if err != nil {
			return nil, err
		}
	}
	return slices.Concat(took...), nil
}

func quantile(sorted []time.Duration, percent int) int64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)*percent/100, len(sorted)-1)].Nanoseconds()
}
