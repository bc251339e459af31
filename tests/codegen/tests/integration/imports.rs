//! Shows that a package with imports is included anywhere by one line, and that well-known types are the library's.

use std::time::{Duration, SystemTime};

use trunkline::rpc::RetryInfo;
use trunkline::{Channel, Incoming, Response, Sender, Server, Status, Wait, wkt};
use trunkline_codegen_tests::first::deliveries_server::{Deliveries, DeliveriesServer};
use trunkline_codegen_tests::first::packages::library::v1::shelf::{self, Place};
use trunkline_codegen_tests::first::{Delivery, FILE_DESCRIPTOR_SET, Order};
use trunkline_message::Message;

struct Courier;

impl Deliveries for Courier {
    async fn deliver(&self, request: Incoming<Order>) -> Result<Response<Delivery>, Status> {
        let order = request.into_inner();
        let again = order.again.as_ref().and_then(|again| again.retry_delay);
        let place = Some(Place::default());
        Ok(Delivery { at: Some(SystemTime::UNIX_EPOCH.into()), within: again, order: Some(order), place }
            .into())
    }

    async fn ping(&self, _: Incoming<wkt::Empty>) -> Result<Response<wkt::Empty>, Status> {
        Ok(wkt::Empty {}.into())
    }

    async fn follow(&self, from: Incoming<wkt::Timestamp>, mut out: Sender<Delivery>) -> Result<(), Status> {
        let at = Some(from.into_inner());
        out.send(Delivery { at, ..Delivery::default() }).await
    }
}

fn order() -> Order {
    Order {
        what: Some(wkt::Any::pack(&Place::default(), shelf::FILE_DESCRIPTOR_SET).unwrap()),
        options: Some([("gift", true)].into_iter().collect()),
        note: Some("ring twice".into()),
        mask: Some(["note"].into_iter().collect()),
        again: Some(RetryInfo { retry_delay: Duration::from_millis(250).try_into().ok() }),
    }
}

#[test]
fn messages_with_imports_hold_the_librarys_types() {
    let delivery = Delivery { order: Some(order()), ..Delivery::default() };
    let linear = delivery.to_linear().unwrap();
    let view = Delivery::view(linear.bytes());
    assert_eq!(view.order().unwrap().note().unwrap().value(), "ring twice");
    assert_eq!(Delivery::read(view), delivery);
    let packed = wkt::Any::pack(&delivery, FILE_DESCRIPTOR_SET).unwrap();
    assert_eq!(packed.unpack::<Delivery>(FILE_DESCRIPTOR_SET), Ok(delivery));
}

#[test]
fn they_are_called_through_a_daemon() {
    use trunkline_codegen_tests::first::deliveries_client::DeliveriesClient;
    let server =
        Server::builder().embedded(true).add_service(DeliveriesServer::new(Courier)).spawn().unwrap();
    server.ready().wait().unwrap();
    let client = DeliveriesClient::new(Channel::builder().embedded(true).connect_lazy());
    let delivery = client.deliver(order()).wait().unwrap().into_inner();
    assert_eq!(SystemTime::try_from(delivery.at.unwrap()), Ok(SystemTime::UNIX_EPOCH));
    assert_eq!(Duration::try_from(delivery.within.unwrap()), Ok(Duration::from_millis(250)));
    assert_eq!(delivery.order, Some(order()));
    client.ping(wkt::Empty {}).wait().unwrap();
    let now = wkt::Timestamp::from(SystemTime::now());
    let mut deliveries = client.follow(now).wait().unwrap();
    assert_eq!(deliveries.recv().wait().unwrap().unwrap().into_inner().at, Some(now));
}
