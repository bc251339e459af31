//! Shows that stubs compile, whatever services and methods are called, and describe their service.
#![allow(deprecated, reason = "deprecated services have to work as well")]

use trunkline::codegen::{Pattern, Service, ServiceDescription};
use trunkline::{Incoming, Receiver, Response, Sender, Status};
use trunkline_codegen_tests::library::v1::shelf::{Place, place::Side};
use trunkline_codegen_tests::services::awkward_server::{Awkward, AwkwardServer};
use trunkline_codegen_tests::services::nothing_server::{Nothing, NothingServer};
use trunkline_codegen_tests::services::{
    self, AWKWARD_SERVICE, FILE_DESCRIPTOR_SET, NOTHING_SERVICE, Request,
};
use trunkline_codegen_tests::services::{Elsewhere, elsewhere::WhereView};
use trunkline_message::{AlignedBuf, Message};

struct Handlers;

type Reply = Result<Response<services::Response>, Status>;

impl Awkward for Handlers {
    async fn new_(&self, _: Incoming<Request>) -> Reply {
        Ok(Response::new(services::Response { value: 1 }))
    }

    async fn clone_(&self, _: Incoming<Request>, mut out: Sender<services::Response>) -> Result<(), Status> {
        out.send(services::Response { value: 2 }).await
    }

    async fn r#type(&self, mut input: Receiver<Request>) -> Reply {
        while input.recv().await?.is_some() {}
        Ok(Response::new(services::Response { value: 3 }))
    }

    async fn r#fn(&self, _: Receiver<Request>, _: Sender<services::Response>) -> Result<(), Status> {
        Ok(())
    }

    async fn self_(&self, _: Incoming<Request>) -> Result<Response<Place>, Status> {
        Ok(Response::new(Place::default()))
    }

    async fn call(&self, _: Incoming<Request>) -> Reply {
        Err(Status::unimplemented("call"))
    }

    async fn description(&self, _: Incoming<Request>) -> Reply {
        Err(Status::unimplemented("description"))
    }

    async fn from_here(&self, _: Incoming<Request>) -> Reply {
        Err(Status::unimplemented("from"))
    }

    async fn into(&self, _: Receiver<Request>) -> Reply {
        Err(Status::unimplemented("into"))
    }

    async fn a_method_whose_name_is_so_long_that_nothing_fits_on_its_line(
        &self,
        request: Incoming<Place>,
    ) -> Result<Response<Place>, Status> {
        Ok(Response::new(request.into_inner()))
    }

    async fn a_streaming_method_whose_name_is_so_long_that_nothing_fits_on_its_line(
        &self,
        _: Receiver<Request>,
        _: Sender<services::Response>,
    ) -> Result<(), Status> {
        Ok(())
    }
}

impl Nothing for Handlers {}

impl services::old_server::Old for Handlers {
    async fn r#do(&self, _: Incoming<Request>) -> Reply {
        Err(Status::unimplemented("old"))
    }
}

#[test]
fn servers_describe_their_service() {
    let served: &ServiceDescription = AwkwardServer::new(Handlers).description();
    assert_eq!((served.name, served.descriptor_set), ("services.v1.Awkward", FILE_DESCRIPTOR_SET));
    assert!(std::ptr::eq(served, &AWKWARD_SERVICE));
    assert!(std::ptr::eq(NothingServer::new(Handlers).clone().description(), &NOTHING_SERVICE));
    assert!(NOTHING_SERVICE.methods.is_empty());
}

#[test]
fn methods_keep_the_names_and_patterns_of_the_proto_file() {
    let methods: Vec<_> = AWKWARD_SERVICE.methods.iter().map(|m| (m.path, m.pattern)).take(4).collect();
    let expected = [
        ("/services.v1.Awkward/New", Pattern::Unary),
        ("/services.v1.Awkward/Clone", Pattern::ServerStreaming),
        ("/services.v1.Awkward/Type", Pattern::ClientStreaming),
        ("/services.v1.Awkward/fn", Pattern::Bidirectional),
    ];
    assert_eq!(methods, expected);
}

#[test]
fn the_embedded_set_describes_every_service() {
    let schema = trunkline_schema::Schema::from_descriptor_set(FILE_DESCRIPTOR_SET).unwrap();
    assert_eq!(schema.services().len(), 9);
    assert!(schema.method("services.v1.Old", "Do").unwrap().idempotent);
}

#[test]
fn types_from_elsewhere_are_like_any_other() {
    let place = Place { row: 3, side: Side::Left };
    let elsewhere = Elsewhere { place: Some(place.clone()), places: vec![place], ..Elsewhere::default() };
    let built = Elsewhere::build(AlignedBuf::new(), |b| {
        b.set_place(elsewhere.place.as_ref().unwrap()).set_sides([Side::Left]);
        b.add_places().set_row(3).set_side(Side::Left);
        b.insert_by_name("left").set_side(Side::Left);
        b.insert_sides_by_row(1, Side::Left).there().set_row(9);
    });
    let built = built.unwrap();
    let view = Elsewhere::view(built.bytes());
    assert_eq!(
        view.by_name().map(|(name, place)| (name, place.side())).collect::<Vec<_>>(),
        [("left", Side::Left)]
    );
    assert!(matches!(view.r#where(), Some(WhereView::There(place)) if place.row() == 9));
    let read = Elsewhere::from(view);
    assert_eq!((&read.place, &read.places), (&elsewhere.place, &elsewhere.places));
    assert_eq!((read.sides, read.sides_by_row[&1]), (vec![Side::Left], Side::Left));
}

/// Never called: that it compiles shows that clients have the methods servers have.
#[allow(dead_code)]
async fn clients_have_the_same_methods(channel: trunkline::Channel) -> Result<(), Status> {
    let client = services::awkward_client::AwkwardClient::new(channel.clone());
    client.new_(Request {}).await?;
    client.clone_(Request {}).await?.recv().await?;
    client.r#type().finish().await?;
    client.r#fn().split();
    let place: Place = client.self_(Request {}).await?.into_inner();
    client.a_method_whose_name_is_so_long_that_nothing_fits_on_its_line(place).await?;
    services::old_client::OldClient::new(channel).r#do(Request {}).await?;
    Ok(())
}
