//! Discovery, messaging, request streams and actor addresses, each with an in-memory twin.
