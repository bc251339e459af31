// HPRPC's LargeData: messages of 128 to 8192 integers, each a member of its own, sent there and back.
package main

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"grpcgopeer/largepb"
)

// Sends back the very message that came: no member is copied.
type mirror struct {
	largepb.UnimplementedLargeServer
}

func (mirror) SendRcv128(_ context.Context, data *largepb.LargeData128) (*largepb.LargeData128, error) {
	return data, nil
}

func (mirror) SendRcv256(_ context.Context, data *largepb.LargeData256) (*largepb.LargeData256, error) {
	return data, nil
}

func (mirror) SendRcv512(_ context.Context, data *largepb.LargeData512) (*largepb.LargeData512, error) {
	return data, nil
}

func (mirror) SendRcv1024(_ context.Context, data *largepb.LargeData1024) (*largepb.LargeData1024, error) {
	return data, nil
}

func (mirror) SendRcv2048(_ context.Context, data *largepb.LargeData2048) (*largepb.LargeData2048, error) {
	return data, nil
}

func (mirror) SendRcv4096(_ context.Context, data *largepb.LargeData4096) (*largepb.LargeData4096, error) {
	return data, nil
}

func (mirror) SendRcv8192(_ context.Context, data *largepb.LargeData8192) (*largepb.LargeData8192, error) {
	return data, nil
}

// The size of an order is the number of members. The message is filled once and encoded for every call; of the answer,
// which is decoded whole, the last member is looked at.
func large(connection *grpc.ClientConn, members int) (call, error) {
	name := protoreflect.FullName(fmt.Sprintf("large.v1.LargeData%d", members))
	kind, err := protoregistry.GlobalTypes.FindMessageByName(name)
	if err != nil {
		return nil, err
	}
	request := kind.New()
	fields := kind.Descriptor().Fields()
	for member := 1; member <= members; member++ {
		value := int32(member*7919%100_000 + 1)
		request.Set(fields.ByNumber(protoreflect.FieldNumber(member)), protoreflect.ValueOfInt32(value))
	}
	last := fields.ByNumber(protoreflect.FieldNumber(members))
	wanted := request.Get(last).Int()
	method := fmt.Sprintf("/large.v1.Large/SendRcv%d", members)
	return func() error {
		reply := kind.New()
		// What the generated stub does.
		err := connection.Invoke(context.Background(), method, request.Interface().(proto.Message), reply.Interface().(proto.Message))
		if err == nil && reply.Get(last).Int() != wanted {
			return fmt.Errorf("the last of %d members came as %d", members, reply.Get(last).Int())
		}
		return err
	}, nil
}
