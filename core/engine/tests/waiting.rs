//! Shows that a message which waits for room in its receiver's heap is not converted again each time that some is made.

mod world;

use trunkline_call::entry::{Completion, Submission};
use trunkline_call::{Code, Encoding};
use world::*;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// So large that what it is converted in is given back each time.
const LARGE: usize = 1500 << 10;
/// Of a heap that has room for two large ones beside small ones.
const HEAP_BYTES: u32 = 4 << 20;
const SMALL: usize = 100;

#[test]
fn what_waits_for_room_is_converted_when_there_is_some() {
    let _profiler = dhat::Profiler::builder().testing().build();
    let mut world = World::new();
    let mut server = world.attach_sized(0, PROTO, None, true, HEAP_BYTES);
    let mut client = world.attach_opaque(0, None, false);
    let wires = [vec![1; LARGE], vec![2; 64]].map(|data| wire_of(&data));
    let [large, small] = wires.map(|wire| world.put(&mut client, &wire, Encoding::Protobuf));
    let mut begin = |world: &mut World, payload| {
        let call = client.call(0, Some(payload), true);
        world.submit(&client, Submission::Call(call)).unwrap();
        world.settle(&mut [&mut client]);
    };
    (0..SMALL).for_each(|_| begin(&mut world, small));
    (0..3).for_each(|_| begin(&mut world, large));
    world.settle(&mut [&mut server]);
    let mut given = server.take();
    assert_eq!(given.len(), SMALL + 2, "the third has no room");
    let before = dhat::HeapStats::get().total_bytes;
    let large = given.split_off(SMALL);
    let end = |world: &mut World, completion: Completion| {
        let Completion::Call(call) = completion else { panic!("{completion:?}") };
        world.submit(&server, release(call.call, call.payload, call.metadata, 0)).unwrap();
        world.submit(&server, Submission::Finish(finish(call.call, Code::Ok, None))).unwrap();
    };
    given.into_iter().for_each(|completion| end(&mut world, completion));
    let taken = dhat::HeapStats::get().total_bytes - before;
    assert!(taken < LARGE as u64, "{taken} bytes for {SMALL} releases");
    large.into_iter().for_each(|completion| end(&mut world, completion));
    world.settle(&mut [&mut server]);
    assert_eq!(server.take().len(), 1, "it goes on when there is room");
}
