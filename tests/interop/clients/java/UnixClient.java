// grpc-java's interoperability cases over a Unix socket, for which its own client has no transport:
//   java -cp JARS UnixClient.java PATH CASE
// The channel names no authority: grpc-java makes one of the path.

import io.grpc.ManagedChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.testing.integration.AbstractInteropTest;

public final class UnixClient extends AbstractInteropTest {
  private final String path;

  private UnixClient(String path) {
    this.path = path;
  }

  @Override
  protected ManagedChannelBuilder<?> createChannelBuilder() {
    return NettyChannelBuilder.forAddress(new DomainSocketAddress(path))
        .channelType(EpollDomainSocketChannel.class)
        .eventLoopGroup(new EpollEventLoopGroup(1))
        .usePlaintext();
  }

  @Override
  protected boolean metricsExpected() {
    return false;
  }

  // Cases are methods: empty_unary is emptyUnary.
  public static void main(String[] words) throws Exception {
    StringBuilder method = new StringBuilder();
    for (String word : words[1].split("_")) {
      method.append(method.length() == 0 ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
    }
    UnixClient client = new UnixClient(words[0]);
    client.setUp();
    AbstractInteropTest.class.getMethod(method.toString()).invoke(client);
    System.exit(0);
  }
}
