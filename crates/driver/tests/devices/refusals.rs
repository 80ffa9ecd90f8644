//! Arrays that are on devices which are not there, or on several: the error names each argument and where it is.

use super::rig::{COUNT, Rig, on_host, scaled};
use tessera_diag::{Code, Diagnostics};
use tessera_driver::{ArrayArg, Ask, DeviceId, DeviceKind, Place, Streams};
use tessera_fake_device::Order;

/// What a call on these two arrays reports.
fn refused(rig: &Rig, x: ArrayArg, y: ArrayArg) -> (Code, String) {
    let kernel = scaled();
    let errors: Diagnostics = kernel
        .prepare(&rig.backends, Rig::call(x, y), Ask::default())
        .and_then(|call| kernel.launch(call))
        .expect_err("the call is refused");
    let first = errors.errors().next().expect("an error");
    assert!(first.loc.is_known(), "{errors}");
    assert!(first.fix().is_some(), "{errors}");
    (first.code, errors.render())
}

/// An array of another one's shape that is said to be elsewhere.
fn at(array: &ArrayArg, place: Place) -> ArrayArg {
    ArrayArg { place, ..array.clone() }
}

#[test]
fn arrays_in_two_places_are_named_with_each() {
    let (rig, other) = (Rig::new(Order::Late), Rig::new(Order::Late));
    let mut values = [0.0; 3];
    let row = rig.row(3, 0).unwrap_or_else(|e| panic!("{e}"));
    let (here, host) = (Place::Device(rig.id), on_host(&mut values));
    let x = ArrayArg { buffer: row.view.clone(), place: here };
    for (y, there) in [
        (host.clone(), "in host memory".to_string()),
        (at(&host, Place::Device(other.id)), format!("on {}", other.id)),
        (at(&host, Place::Other("tpu:0".into())), "tpu:0".to_string()),
    ] {
        let (code, text) = refused(&rig, x.clone(), y);
        assert!(text.contains(&there), "{text}");
        if code == Code::E_LAUNCH_DEVICE_MISMATCH && !there.contains("tpu") {
            assert!(text.contains(&format!("`x` on {}", rig.id)) && text.contains("`y`"), "{text}");
        } else {
            assert!(there.contains("tpu"), "{code:?} {text}");
        }
    }
}

#[test]
fn a_device_that_is_not_there_is_named_with_the_array() {
    let rig = Rig::new(Order::Late);
    let mut values = [0.0; 3];
    let host = on_host(&mut values);
    for (id, says) in [
        (DeviceId::new(DeviceKind::FAKE, COUNT), format!("below fake:{COUNT}")),
        (DeviceId::new(DeviceKind::FAKE, u32::MAX), format!("got fake:{}", u32::MAX)),
        (DeviceId::new(DeviceKind::LEVEL_ZERO, 0), "runs on level_zero:0".to_string()),
    ] {
        let array = at(&host, Place::Device(id));
        let (code, text) = refused(&rig, array.clone(), array);
        assert_eq!(code, Code::E_DRIVER, "{text}");
        assert!(text.contains(&says) && text.contains(&format!("`x` is on {id}")), "{text}");
    }
}

#[test]
fn a_backend_elsewhere_does_not_take_the_arrays() {
    let (rig, other) = (Rig::new(Order::Late), Rig::new(Order::Late));
    let row = rig.row(3, 0).unwrap_or_else(|e| panic!("{e}"));
    let x = ArrayArg { buffer: row.view.clone(), place: Place::Device(rig.id) };
    rig.backends.select(Some(&other.id.to_string())).unwrap_or_else(|e| panic!("{e}"));
    let (code, text) = refused(&rig, x.clone(), x);
    assert_eq!(code, Code::E_LAUNCH_DEVICE_MISMATCH);
    assert!(text.contains(&format!("the arrays are on {}", rig.id)), "{text}");
    assert!(text.contains(&format!("requests {}", other.id)), "{text}");
}

#[test]
fn arrays_of_the_host_are_copied_to_a_device_that_is_selected() {
    let rig = Rig::new(Order::Late);
    let kernel = scaled();
    rig.backends.select(Some(&rig.id.to_string())).unwrap_or_else(|e| panic!("{e}"));
    let (mut x, mut y) = ([1.0, 2.0], [0.0, 0.0]);
    let call = Rig::call(on_host(&mut x), on_host(&mut y));
    let prepared = kernel.prepare(&rig.backends, call, Ask::default());
    kernel.launch(prepared.unwrap_or_else(|e| panic!("{e}"))).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(y, [3.0, 6.0]);
    assert!(kernel.take_warnings().iter().any(|w| w.contains("copied to the device")));
    assert_eq!(rig.fake.hazards(), [""; 0]);
}

#[test]
fn arrays_of_a_device_are_copied_to_the_interpreter() {
    let rig = Rig::new(Order::Late);
    let kernel = scaled();
    rig.backends.select(Some("interp")).unwrap_or_else(|e| panic!("{e}"));
    let (x, y) = (rig.row(2, 0).unwrap(), rig.row(2, 0).unwrap());
    x.write(&[4.0, 5.0], rig.queue(0)).unwrap();
    rig.launch(&kernel, (&x, &y), Streams::default()).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(y.read(rig.queue(0)).unwrap(), [12.0, 15.0]);
    assert_eq!(rig.fake.hazards(), [""; 0]);
}
