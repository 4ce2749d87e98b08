package org.apache.thrift.transport;

/**
 * The name under which Hive 3.1.3 knows the framed transport, which Thrift has in another package since 0.14. The metastore starts only
 * where the name resolves; it uses it with metastore.thrift.framed.transport.enabled alone, which this image leaves off.
 */
public class TFramedTransport extends org.apache.thrift.transport.layered.TFramedTransport {
  public TFramedTransport(TTransport transport) throws TTransportException {
    super(transport);
  }

  public static class Factory extends org.apache.thrift.transport.layered.TFramedTransport.Factory {}
}
