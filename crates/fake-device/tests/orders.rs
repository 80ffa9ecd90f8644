//! Orders of work, hazards, failures and counts, without the driver crate.

use std::sync::Arc;
use tessera_diag::Code;
use tessera_fake_device::{Call, Fake, FakeDevice, Live, Order};
use tessera_target::device::{Device, Memory, Platform};

const ORDERS: [Order; 6] = [
    Order::Early,
    Order::Late,
    Order::Random(1),
    Order::Random(2),
    Order::Random(3),
    Order::Random(4),
];

fn fresh(order: Order) -> Arc<FakeDevice> {
    let device = FakeDevice::new(0);
    device.set_order(order);
    device
}

fn memory(device: &Arc<FakeDevice>, bytes: u64) -> Box<dyn Memory> {
    device.clone().alloc(bytes, 0).unwrap()
}

/// Fills on one stream, copies on another, reads on the default one; `waits` says which waits there are.
fn relay(device: &Arc<FakeDevice>, waits: [bool; 2]) -> [u8; 8] {
    let (a, b) = (memory(device, 8), memory(device, 8));
    let (one, two) = (device.clone().stream().unwrap(), device.clone().stream().unwrap());
    let (first, second) = (device.event(false).unwrap(), device.event(false).unwrap());
    let mut out = [0; 8];
    // SAFETY: both are memory of eight bytes.
    unsafe {
        device.fill(a.address(), 5, 8, one.handle()).unwrap();
        a.used_on(one.handle());
        first.record(one.handle()).unwrap();
        if waits[0] {
            first.block(two.handle()).unwrap();
        }
        device.copy(b.address(), a.address(), 8, two.handle()).unwrap();
        a.used_on(two.handle());
        b.used_on(two.handle());
        second.record(two.handle()).unwrap();
        if waits[1] {
            second.block(0).unwrap();
        }
        device.copy_out(&mut out, b.address(), 0).unwrap();
    }
    out
}

#[test]
fn every_order_gives_the_result_of_a_program_that_waits() {
    for order in ORDERS {
        let device = fresh(order);
        assert_eq!(relay(&device, [true, true]), [5; 8], "{order:?}");
        device.synchronize_all().unwrap();
        assert_eq!(device.hazards(), [""; 0], "{order:?}");
        assert_eq!((device.live(), device.bytes_in_use()), (Live::default(), 0), "{order:?}");
    }
}

#[test]
fn a_wait_that_is_missing_is_found_in_every_order() {
    for order in ORDERS {
        for waits in [[false, true], [true, false]] {
            let device = fresh(order);
            let out = relay(&device, waits);
            let found = device.hazards();
            assert!(
                found.iter().any(|h| h.contains("does not wait")),
                "{order:?} {waits:?} {out:?}"
            );
        }
    }
    // Late work has not run: the values are wrong too.
    assert_eq!(relay(&fresh(Order::Late), [true, false]), [0xff; 8]);
}

#[test]
fn memory_that_goes_while_another_stream_uses_it_is_found() {
    for order in ORDERS {
        let device = fresh(order);
        let (a, stream) = (memory(&device, 8), device.clone().stream().unwrap());
        // SAFETY: it is memory of eight bytes.
        unsafe { device.fill(a.address(), 0, 8, stream.handle()) }.unwrap();
        // Its owner does not say that the stream uses it.
        drop(a);
        assert_eq!(device.hazards().len(), 1, "{order:?}");
    }
}

#[test]
fn an_address_of_the_host_is_an_error_that_stays() {
    let device = fresh(Order::Early);
    let mine = [0u8; 16];
    // SAFETY: the device holds addresses against its memory.
    unsafe { device.fill(mine.as_ptr() as u64, 1, 16, 0) }.unwrap();
    for _ in 0..2 {
        let error = device.synchronize(0).unwrap_err();
        assert_eq!((error.code(), error.lost), (Code::E_ILLEGAL_ADDRESS, true));
    }
    let error = device.clone().alloc(1, 0).err().unwrap();
    assert!(error.lost);
    assert_eq!(mine, [0; 16]);
}

#[test]
fn each_call_fails_on_demand_and_leaves_nothing() {
    let program = |device: &Arc<FakeDevice>| -> tessera_target::device::Result<()> {
        let a = device.clone().alloc(8, 0)?;
        let stream = device.clone().stream()?;
        let event = device.event(true)?;
        // SAFETY: it is memory of eight bytes.
        unsafe { device.copy_in(a.address(), &[1; 8], 0) }?;
        event.record(0)?;
        event.block(stream.handle())?;
        let recording = device.clone().record()?;
        // SAFETY: as above.
        unsafe { device.fill(a.address(), 2, 8, recording.stream()) }?;
        let graph = recording.end(Default::default())?;
        // SAFETY: the memory is there.
        unsafe { graph.launch(stream.handle()) }?;
        a.used_on(stream.handle());
        device.synchronize(stream.handle())
    };
    let device = fresh(Order::Late);
    device.fail(None);
    program(&device).unwrap();
    let calls = device.calls();
    assert!(calls > 10);
    for number in 0..calls {
        device.fail(Some((None, number)));
        let error = program(&device).expect_err("the call fails");
        assert_eq!(error.code(), Code::E_DRIVER);
        device.fail(None);
        device.synchronize_all().unwrap();
        assert_eq!((device.live(), device.bytes_in_use()), (Live::default(), 0), "call {number}");
    }
    device.fail(Some((Some(Call::Event), 0)));
    assert!(program(&device).is_err());
}

#[test]
fn the_platform_has_as_many_devices_as_requested() {
    let fake = Fake::new(2);
    assert!(fake.open(1).is_ok());
    assert_eq!(fake.open(2).err().map(|e| e.code()), Some(Code::E_DRIVER));
    let memory = fake.open(1).unwrap().alloc(4, 0).unwrap();
    assert_eq!(fake.device_of(memory.address()), Some(1));
    assert_eq!(fake.device_of(&raw const fake as u64), None);
}
