//! Memory that no machine has.

use tessera_diag::{Code, Loc};
use tessera_interp::inner::{LARGE, bytes_of, room};

#[test]
fn what_no_machine_has_is_refused() {
    assert!(room(100, &Loc::unknown()).is_ok());
    assert!(room(2 * LARGE, &Loc::unknown()).is_ok());
    let code = room(1 << 62, &Loc::unknown()).map_err(|e| e.code);
    assert_eq!(code, Err(Code::E_OOM));
    assert!(room(bytes_of(usize::MAX), &Loc::unknown()).is_err());
}
