//! A netlink socket that sends many requests at once and accounts for each.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::{Socket as RawSocket, SocketAddr};
use nix::sys::socket::{MsgFlags, setsockopt, sockopt};

use crate::wire::{self, Message};
use crate::{KernelError, Request, netns};

/// Routing netlink, the default protocol.
pub const ROUTE: isize = libc::NETLINK_ROUTE as isize;
/// Netfilter netlink, for [`crate::nft`].
pub const NETFILTER: isize = libc::NETLINK_NETFILTER as isize;
/// Generic netlink, for [`crate::macsec`].
pub const GENERIC: isize = libc::NETLINK_GENERIC as isize;

/// Requests per datagram: with an acknowledgement each, more of them overrun a default receive buffer.
const MAX_MESSAGES: usize = 190;
/// Bytes per datagram, below the default send buffer.
const MAX_BYTES: usize = 120 * 1024;
/// Receive buffer of the socket: room for the acknowledgements of a full datagram several times over.
const RECEIVE_BUFFER: usize = 2 << 20;
/// Send buffer of the socket.
const SEND_BUFFER: usize = 512 * 1024;
/// One read: the kernel fills dumps up to 32 KiB a datagram.
const READ_BYTES: usize = 64 * 1024;
/// How often an interrupted dump is taken again before it is called a failure.
const DUMP_ATTEMPTS: usize = 20;

/// A blocking netlink socket in one network namespace.
pub struct Socket {
    inner: RawSocket,
    seq: u32,
    buffer: Vec<u8>,
}

impl Socket {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel refuses the socket or one of its options.
    pub fn open(protocol: isize) -> Result<Self, KernelError> {
        let doing = "open a netlink socket";
        let inner = open_raw(protocol).map_err(|e| KernelError::from_io(doing, &e))?;
        Ok(Self { inner, seq: 0, buffer: vec![0; READ_BYTES] })
    }

    /// Opens a socket in another network namespace, without moving the calling thread.
    ///
    /// # Errors
    /// When the namespace cannot be entered or the socket is refused.
    pub fn open_in(namespace: BorrowedFd<'_>, protocol: isize) -> Result<Self, KernelError> {
        netns::enter(namespace, || Self::open(protocol))?
    }

    /// Sends all requests, many per datagram, and reports the fate of each in order. A refused request does not
    /// stop the later ones.
    ///
    /// # Errors
    /// The outer error is a failure of the socket itself; then it is unknown which requests were carried out.
    pub fn batch(&mut self, requests: &[Request]) -> io::Result<Vec<Result<(), KernelError>>> {
        let mut results = Vec::with_capacity(requests.len());
        let mut rest = requests;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fitting = rest
                .iter()
                .take(MAX_MESSAGES)
                .take_while(|r| {
                    bytes += r.bytes().len();
                    bytes <= MAX_BYTES
                })
                .count()
                .max(1);
            let (chunk, later) = rest.split_at(fitting);
            self.send_chunk(chunk, &mut results)?;
            rest = later;
        }
        Ok(results)
    }

    /// Sends all requests like [`Self::batch`] and returns the first failure.
    ///
    /// # Errors
    /// The first refused request, or a failure of the socket.
    pub fn all(&mut self, requests: &[Request]) -> Result<(), KernelError> {
        let doing = || requests.first().map_or("talk to the kernel", Request::doing);
        let results = self.batch(requests).map_err(|e| KernelError::from_io(doing(), &e))?;
        results.into_iter().collect()
    }

    /// Sends one request and waits for its acknowledgement.
    ///
    /// # Errors
    /// The kernel's refusal, or a failure of the socket.
    pub fn request(&mut self, request: &Request) -> Result<(), KernelError> {
        self.all(std::slice::from_ref(request))
    }

    /// Sends a dump request and decodes every answer; answers for which `decode` returns nothing are left out.
    /// A dump that the kernel marks as inconsistent is taken again.
    ///
    /// # Errors
    /// The kernel's refusal, a failure of the socket, or a table that kept changing for 20 attempts.
    pub fn dump<T>(
        &mut self,
        request: &Request,
        mut decode: impl FnMut(Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, KernelError> {
        for _ in 0..DUMP_ATTEMPTS {
            let mut items = Vec::new();
            if self.dump_once(request, &mut |message| items.extend(decode(message)))? {
                return Ok(items);
            }
        }
        Err(KernelError {
            errno: libc::EINTR,
            text: Some(format!("it changed during each of {DUMP_ATTEMPTS} reads")),
            doing: request.doing().to_owned(),
        })
    }

    /// One pass of a dump; false if the kernel marked it inconsistent.
    fn dump_once(
        &mut self,
        request: &Request,
        each: &mut dyn FnMut(Message<'_>),
    ) -> Result<bool, KernelError> {
        let failed = |e: io::Error| KernelError::from_io(request.doing(), &e);
        self.seq = self.seq.wrapping_add(1);
        let mut datagram = Vec::with_capacity(request.bytes().len());
        request.append_to(&mut datagram, self.seq, 0);
        self.send(&datagram).map_err(failed)?;
        let mut consistent = true;
        loop {
            let length = self.receive().map_err(failed)?;
            let datagram = self.buffer.get(..length).unwrap_or_default();
            for message in wire::messages(datagram).filter(|m| m.seq == self.seq) {
                consistent &= message.flags & wire::F_DUMP_INTR == 0;
                match message.kind {
                    wire::MSG_DONE | wire::MSG_ERROR => {
                        let outcome = outcome(&message, request.doing());
                        return outcome.map(|()| consistent);
                    }
                    _ => each(message),
                }
                if message.flags & wire::F_MULTI == 0 {
                    return Ok(consistent);
                }
            }
        }
    }

    /// Sends a request that has one answer (a `GET` of one object) and decodes it.
    ///
    /// # Errors
    /// The kernel's refusal or a failure of the socket.
    pub fn get<T>(
        &mut self,
        request: &Request,
        decode: impl FnMut(Message<'_>) -> Option<T>,
    ) -> Result<Option<T>, KernelError> {
        Ok(self.dump(request, decode)?.into_iter().next())
    }

    /// Sends one datagram's worth of requests and collects their acknowledgements.
    fn send_chunk(
        &mut self,
        chunk: &[Request],
        results: &mut Vec<Result<(), KernelError>>,
    ) -> io::Result<()> {
        let base = results.len();
        let first_seq = self.seq.wrapping_add(1);
        let mut datagram = Vec::with_capacity(chunk.iter().map(|r| r.bytes().len()).sum());
        for request in chunk {
            self.seq = self.seq.wrapping_add(1);
            request.append_to(&mut datagram, self.seq, wire::F_ACK);
        }
        self.send(&datagram)?;
        results.resize(base + chunk.len(), Ok(()));
        let mut missing = chunk.len();
        while missing > 0 {
            let length = self.receive()?;
            let answer = self.buffer.get(..length).unwrap_or_default();
            for message in wire::messages(answer) {
                let Ok(index) = usize::try_from(message.seq.wrapping_sub(first_seq)) else { continue };
                if message.kind != wire::MSG_ERROR || index >= chunk.len() {
                    continue;
                }
                if let (Some(slot), Some(request)) = (results.get_mut(base + index), chunk.get(index)) {
                    *slot = outcome(&message, request.doing());
                    missing -= 1;
                }
            }
        }
        Ok(())
    }

    /// Sends raw bytes as one datagram.
    pub(crate) fn send(&self, datagram: &[u8]) -> io::Result<()> {
        loop {
            match self.inner.send(datagram, 0) {
                Ok(_) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Receives one datagram into the buffer and returns its length.
    pub(crate) fn receive(&mut self) -> io::Result<usize> {
        loop {
            match nix::sys::socket::recv(self.inner.as_raw_fd(), &mut self.buffer, MsgFlags::empty()) {
                Ok(length) => return Ok(length),
                Err(nix::errno::Errno::EINTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The datagram that [`Self::receive`] read.
    pub(crate) fn received(&self, length: usize) -> &[u8] {
        self.buffer.get(..length).unwrap_or_default()
    }

    /// A fresh sequence number.
    pub(crate) fn next_seq(&mut self) -> u32 {
        self.seq = self.seq.wrapping_add(1);
        self.seq
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        inner_fd(&self.inner)
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

/// Opens and configures the descriptor: capped acknowledgements with the kernel's text, strict checks of dump
/// requests, larger buffers where allowed.
pub(crate) fn open_raw(protocol: isize) -> io::Result<RawSocket> {
    let mut inner = RawSocket::new(protocol)?;
    inner.bind(&SocketAddr::new(0, 0))?;
    inner.set_cap_ack(true)?;
    inner.set_ext_ack(true)?;
    if protocol == ROUTE {
        inner.set_netlink_get_strict_chk(true)?;
    }
    // The forced variants need CAP_NET_ADMIN in the first user namespace; the plain ones are capped by sysctl.
    if setsockopt(&inner_fd(&inner), sockopt::RcvBufForce, &RECEIVE_BUFFER).is_err() {
        setsockopt(&inner_fd(&inner), sockopt::RcvBuf, &RECEIVE_BUFFER)?;
    }
    if setsockopt(&inner_fd(&inner), sockopt::SndBufForce, &SEND_BUFFER).is_err() {
        setsockopt(&inner_fd(&inner), sockopt::SndBuf, &SEND_BUFFER)?;
    }
    Ok(inner)
}

/// Borrows the descriptor of a raw socket.
pub(crate) fn inner_fd(socket: &RawSocket) -> BorrowedFd<'_> {
    // SAFETY: the descriptor is open and owned by `socket`, which outlives the borrow by the signature's lifetime.
    // JUSTIFICATION: netlink-sys offers only `AsRawFd`, and nix's options want an `AsFd`.
    unsafe { BorrowedFd::borrow_raw(socket.as_raw_fd()) }
}

/// Reads `NLMSG_ERROR` and `NLMSG_DONE`: errno, and the kernel's text if there is one.
pub(crate) fn outcome(message: &Message<'_>, doing: &str) -> Result<(), KernelError> {
    let code = wire::u32_at(message.body, 0).map_or(0, u32::cast_signed);
    if code >= 0 {
        return Ok(());
    }
    // Attributes follow the errno and, in an error message, the (capped) header of the request.
    let fixed = if message.kind == wire::MSG_DONE {
        4
    } else if message.flags & wire::F_CAPPED != 0 {
        4 + wire::HEADER_LEN
    } else {
        let request = wire::u32_at(message.body, 4).and_then(|l| usize::try_from(l).ok());
        4 + wire::align(request.unwrap_or(wire::HEADER_LEN).max(wire::HEADER_LEN))
    };
    let text = if message.flags & wire::F_ACK_TLVS == 0 {
        None
    } else {
        wire::find(wire::attrs_after(message.body, fixed), 1).map(wire::text)
    };
    Err(KernelError { errno: code.checked_neg().unwrap_or(libc::EIO), text, doing: doing.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An `NLMSG_ERROR` body: errno, the request's header, what follows.
    fn error_body(errno: i32, request_length: u32, rest: &[u8]) -> Vec<u8> {
        [&errno.to_ne_bytes()[..], &request_length.to_ne_bytes(), &[0; 12], rest].concat()
    }

    fn text_attribute(text: &str) -> Vec<u8> {
        let mut attributes = wire::Attrs::new();
        attributes.str(1, text);
        attributes.into_bytes()
    }

    #[test]
    fn the_kernels_text_is_found_behind_a_capped_and_a_repeated_request() {
        let text = text_attribute("Invalid nexthop id");
        let capped = error_body(-22, 100, &text);
        let repeated = error_body(-22, 36, &[vec![0; 20], text].concat());
        for (flags, body) in [(wire::F_CAPPED, capped), (0, repeated)] {
            let flags = flags | wire::F_ACK_TLVS;
            let message = Message { kind: wire::MSG_ERROR, flags, seq: 1, body: &body };
            let error = outcome(&message, "set nexthop group 9").unwrap_err();
            let wanted = "cannot set nexthop group 9: Invalid argument (kernel: Invalid nexthop id)";
            assert_eq!(error.to_string(), wanted);
        }
        let done = [&0i32.to_ne_bytes()[..], &[1, 2]].concat();
        let message = Message { kind: wire::MSG_DONE, flags: 0, seq: 1, body: &done };
        assert_eq!(outcome(&message, ""), Ok(()));
    }

    proptest! {
        #[test]
        fn no_acknowledgement_panics(kind in 2u16..4, flags in any::<u16>(), body in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = outcome(&Message { kind, flags, seq: 1, body: &body }, "");
        }
    }
}
